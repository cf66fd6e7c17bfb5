// SPDX-License-Identifier: Apache-2.0
// CIFAR files: CIFAR-10 and CIFAR-100 in the "binary version" of their authors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/source/labelled_images.h"

namespace sluice::worker {

// Selects the label of a record: CIFAR-10's, or one of CIFAR-100's two.
enum class CifarLabels { kTen, kHundredCoarse, kHundredFine };

// Reads the 32 × 32 color images of `paths` in order, but at most the first `limit` (0 means all).
// Errors name the file. Fails with NOT_FOUND if a file does not exist. Fails with DATA_LOSS if a
// file does not have a whole number of records, or has a different number of records than the first
// file, even beyond the limit. Without a limit, it also fails with DATA_LOSS if a file has fewer
// than `published` records; with a limit, a user may have shortened files on purpose. Fails with
// INVALID_ARGUMENT if a file is empty, the total exceeds kMaxImageBytes, or a label is out of
// range.
absl::StatusOr<LabelledImages> ReadCifarFiles(const std::vector<std::string>& paths,
                                              CifarLabels labels, uint32_t published,
                                              uint32_t limit);

}  // namespace sluice::worker
