// Resample: scales a part of an image without aliasing.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "worker/data/source/augmentation.h"
#include "worker/data/source/image_decoder.h"

namespace sluice::worker {

// `from` is scaled to `width` × `height`, and `window` of the result is written.
struct ResampleOptions {
  PixelBox from;
  uint32_t width = 0;
  uint32_t height = 0;
  PixelBox window;
  bool flip = false;  // Mirrors left to right.
};

// Writes `planes`: red, green and blue, each window.height × window.width. Each pixel is a mean of
// the pixels around its position, weighted by a triangle whose width is that of a pixel of the
// coarser image (bilinear with antialiasing). Weights are integer multiples of 1/65536, so every
// machine gets the same result.
void Resample(const RgbImage& image, const ResampleOptions& options, absl::Span<uint8_t> planes);

// Returns the usual crop for tests: the shorter side is scaled to 256/224 of `side`, and the center
// is taken.
ResampleOptions MiddleOf(ImageSize size, uint32_t side);

}  // namespace sluice::worker
