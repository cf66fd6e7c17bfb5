// Resample: a part of an image at another size, without the artefacts of leaving pixels out.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "worker/data/source/augmentation.h"
#include "worker/data/source/image_decoder.h"

namespace sluice::worker {

// What of an image is wanted, and how large: `from` is scaled to `width` × `height`, of which
// `window` is written.
struct ResampleOptions {
  PixelBox from;
  uint32_t width = 0;
  uint32_t height = 0;
  PixelBox window;
  bool flip = false;  // Left to right.
};

// Writes `planes`: red, green and blue, each window.height × window.width. Each pixel is a mean of
// those around its place, weighted by a triangle as wide as a pixel of the coarser of both images
// (bilinear with antialiasing): whole numbers of 1/65536, the same on every machine.
void Resample(const RgbImage& image, const ResampleOptions& options, absl::Span<uint8_t> planes);

// The usual crop for tests: scaled so that the shorter side is 256/224 of `side`, of which the
// middle is taken.
ResampleOptions MiddleOf(ImageSize size, uint32_t side);

}  // namespace sluice::worker
