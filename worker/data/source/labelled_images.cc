// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/labelled_images.h"

#include <array>
#include <cmath>

namespace sluice::worker {

Normalization MeasureNormalization(const LabelledImages& images) {
  const size_t plane = size_t{images.height} * images.width;
  Normalization found;
  for (uint32_t channel = 0; channel < images.channels; ++channel) {
    std::array<uint64_t, 256> counts{};
    for (size_t image = 0; image < images.count; ++image) {
      const uint8_t* pixels = images.pixels.data() + (image * images.channels + channel) * plane;
      for (size_t i = 0; i < plane; ++i) ++counts[pixels[i]];
    }
    uint64_t sum = 0;
    uint64_t squares = 0;
    for (uint64_t value = 0; value < counts.size(); ++value) {
      sum += counts[value] * value;
      squares += counts[value] * value * value;
    }
    found.mean.push_back(0);
    found.deviation.push_back(1);
    const auto n = static_cast<double>(plane * images.count);
    if (n == 0) continue;
    const double mean = static_cast<double>(sum) / n;
    const double variance = static_cast<double>(squares) / n - mean * mean;
    found.mean.back() = static_cast<float>(mean / 255);
    // If all pixels of a channel are equal, its scale stays 1.
    if (variance > 0) found.deviation.back() = static_cast<float>(std::sqrt(variance) / 255);
  }
  return found;
}

}  // namespace sluice::worker
