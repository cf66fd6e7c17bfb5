// SPDX-License-Identifier: Apache-2.0
// LabelledImages: an in-memory data set of 8-bit images of equal size, with their classes.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/source/augmentation.h"

namespace sluice::worker {

// Upper limit for image data sets in memory.
inline constexpr uint64_t kMaxImageBytes = uint64_t{4} << 30;

struct LabelledImages {
  uint32_t count = 0;
  uint32_t channels = 1;  // 3 for red, green and blue; 1 for gray.
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t classes = 0;
  std::vector<uint8_t> pixels;  // count × channels × height × width.
  std::vector<uint8_t> labels;  // count values, each below `classes`.

  PlaneShape shape() const { return {channels, height, width}; }
};

// For each channel, the value to subtract from a pixel and the value to divide the result by. In
// these units, a byte of 255 is 1.0.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> deviation;
};

// Measures all pixels of each channel; for Fashion-MNIST the result is 0.2860 and 0.3530. Sums are
// exact, so every machine gets the same result.
Normalization MeasureNormalization(const LabelledImages& images);

}  // namespace sluice::worker
