// IdxFile: arrays of bytes in the idx format of MNIST and its relatives, plain or gzip-compressed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/source/labelled_images.h"

namespace sluice::worker {

// MNIST and its relatives.
inline constexpr uint32_t kIdxClasses = 10;

struct IdxArray {
  std::vector<uint32_t> shape;
  std::vector<uint8_t> bytes;
};

// Reads an array of unsigned bytes with `dimensions` dimensions; at most the first `limit` of its
// items (0: all). NOT_FOUND: no such file. DATA_LOSS: truncated, not gzip where it says so, longer
// than its header says. INVALID_ARGUMENT: not an idx file, or one of another kind; over
// kMaxImageBytes.
absl::StatusOr<IdxArray> ReadIdxFile(const std::string& path, uint32_t dimensions, uint32_t limit);

// Images and labels that belong together. INVALID_ARGUMENT too: unequal counts, a label that is no
// class.
absl::StatusOr<LabelledImages> ReadIdxImages(const std::string& images_path,
                                             const std::string& labels_path, uint32_t limit);

}  // namespace sluice::worker
