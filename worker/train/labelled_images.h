// LabelledImages: a data set in memory: equally large grey images of bytes, each with its class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "job/job_spec.h"

namespace sluice {

// MNIST and its relatives.
inline constexpr uint32_t kImageClasses = 10;

struct LabelledImages {
  uint32_t count = 0;
  uint32_t height = 0;
  uint32_t width = 0;
  std::vector<uint8_t> pixels;  // count × height × width.
  std::vector<uint8_t> labels;  // count; below kImageClasses.

  size_t image_bytes() const { return size_t{height} * width; }
};

// What to subtract from and divide a pixel by, in units of the brightest (255 is 1.0).
struct Normalization {
  float mean = 0;
  float deviation = 1;
};

// Over all pixels; for Fashion-MNIST 0.2860 and 0.3530. Exact sums: the same on every machine.
Normalization MeasureNormalization(const LabelledImages& images);

// The part of the data that `spec` names: its format, and at most `limit` samples. Errors name the
// file and what is wrong with it.
absl::StatusOr<LabelledImages> LoadTrainingImages(const DataSpec& spec);
absl::StatusOr<LabelledImages> LoadTestImages(const DataSpec& spec);

}  // namespace sluice
