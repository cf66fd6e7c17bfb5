// Augmentation: what is done to training images so that no epoch sees the same ones. All of it is a
// function of (seed, epoch, sample), so that a run goes on from a checkpoint as it would have
// without.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/random.h"

namespace sluice::worker {

struct Augmentation {
  uint32_t crop_padding = 0;  // Black pixels put on each side before a crop of the old size.
  bool flip = false;          // Left to right, every other time.
  // A crop of at least this share of the image's area, of random shape, is scaled to the image's
  // size; 0: off.
  double random_resized_crop = 0;
};

struct EpochKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
};

// What is drawn for one sample in one epoch.
CounterRandom SampleRandom(EpochKey epoch, uint32_t sample);

struct PlaneShape {
  uint32_t channels = 0;
  uint32_t height = 0;
  uint32_t width = 0;

  size_t bytes() const { return size_t{channels} * height * width; }
};

// Writes `from`, moved by a crop with padding and flipped, as `random` says. Both are channels of
// height × width bytes.
void CropAndFlip(const Augmentation& augmentation, const PlaneShape& shape,
                 absl::Span<const uint8_t> from, CounterRandom random, absl::Span<uint8_t> to);

// A part of an image, in pixels.
struct PixelBox {
  uint32_t left = 0;
  uint32_t top = 0;
  uint32_t width = 0;
  uint32_t height = 0;
};

// The part of an image that random_resized_crop scales up: its area at least `least_area` of the
// image's, its width to height between 3 : 4 and 4 : 3 (Szegedy et al., "Going deeper with
// convolutions", 2014).
PixelBox RandomCrop(uint32_t width, uint32_t height, double least_area, CounterRandom* random);

}  // namespace sluice::worker
