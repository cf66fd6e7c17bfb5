// SPDX-License-Identifier: Apache-2.0
// IdxFile: byte arrays in the idx format of MNIST and similar data sets, plain or gzip-compressed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/source/labelled_images.h"

namespace sluice::worker {

// Number of classes in MNIST and similar data sets.
inline constexpr uint32_t kIdxClasses = 10;

struct IdxArray {
  std::vector<uint32_t> shape;
  std::vector<uint8_t> bytes;
};

// Reads an array of unsigned bytes with `dimensions` dimensions, at most its first `limit` items (0
// means all). Fails with NOT_FOUND if the file does not exist; with DATA_LOSS if it is truncated,
// is damaged gzip, or is longer than its header says; with INVALID_ARGUMENT if it is not an idx
// file, has another type or shape, or exceeds kMaxImageBytes.
absl::StatusOr<IdxArray> ReadIdxFile(const std::string& path, uint32_t dimensions, uint32_t limit);

// Reads images and their labels. Also fails with INVALID_ARGUMENT if the counts differ or a label
// is out of range.
absl::StatusOr<LabelledImages> ReadIdxImages(const std::string& images_path,
                                             const std::string& labels_path, uint32_t limit);

}  // namespace sluice::worker
