// CIFAR files: CIFAR-10 and CIFAR-100 as their authors publish them, in the "binary version".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/source/labelled_images.h"

namespace sluice::worker {

// What of a record is the label: CIFAR-10's, or one of the two that CIFAR-100 has.
enum class CifarLabels { kTen, kHundredCoarse, kHundredFine };

// The images of `paths`, in order, 32 × 32 in three colours; at most the first `limit` (0: all).
// Errors name the file. NOT_FOUND: there is none. DATA_LOSS: not a whole number of records, not as
// many as the first of `paths` has, whether or not they are under the limit, or, without a limit,
// fewer than the `published` ones of such a file: with a limit, files may be cut or made shorter
// on purpose. INVALID_ARGUMENT: empty, over kMaxImageBytes in all, or a label that is no class.
absl::StatusOr<LabelledImages> ReadCifarFiles(const std::vector<std::string>& paths,
                                              CifarLabels labels, uint32_t published,
                                              uint32_t limit);

}  // namespace sluice::worker
