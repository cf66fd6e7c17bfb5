// LabelledImages: a data set in memory: equally large images of bytes, each with its class.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/source/augmentation.h"

namespace sluice::worker {

// Larger data sets of images are refused where they are held in memory.
inline constexpr uint64_t kMaxImageBytes = uint64_t{4} << 30;

struct LabelledImages {
  uint32_t count = 0;
  uint32_t channels = 1;  // Red, green, blue; or grey.
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t classes = 0;
  std::vector<uint8_t> pixels;  // count × channels × height × width.
  std::vector<uint8_t> labels;  // count; below classes.

  PlaneShape shape() const { return {channels, height, width}; }
};

// What to subtract from and divide a pixel by, for each channel, in units of the brightest (255 is
// 1.0).
struct Normalization {
  std::vector<float> mean;
  std::vector<float> deviation;
};

// Over all pixels of each channel; for Fashion-MNIST 0.2860 and 0.3530. Exact sums: the same on
// every machine.
Normalization MeasureNormalization(const LabelledImages& images);

}  // namespace sluice::worker
