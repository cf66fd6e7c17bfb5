// SPDX-License-Identifier: Apache-2.0
// Resample: scales a part of an image without aliasing.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "worker/data/source/augmentation.h"
#include "worker/data/source/image_decoder.h"

namespace sluice::worker {

// Resample scales `from` to `width` × `height` and writes only the part `window` of the result.
struct ResampleOptions {
  PixelBox from;
  uint32_t width = 0;
  uint32_t height = 0;
  PixelBox window;
  bool flip = false;  // Mirrors left to right.
};

// Writes `planes`: red, green and blue, each window.height × window.width. Each pixel is a weighted
// mean of the source pixels around its position (bilinear with antialiasing). The weights form a
// triangle whose half-width is one pixel of the coarser image. Weights are integer multiples of
// 1/65536, so every machine gets the same result.
void Resample(const RgbImage& image, const ResampleOptions& options, absl::Span<uint8_t> planes);

// Returns the usual crop for tests: scales the shorter side to 256/224 of `side` and takes the
// center.
ResampleOptions MiddleOf(ImageSize size, uint32_t side);

}  // namespace sluice::worker
