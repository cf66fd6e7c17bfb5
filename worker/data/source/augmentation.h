// SPDX-License-Identifier: Apache-2.0
// Augmentation: random changes to training images, different in each epoch. They depend only on
// (seed, epoch, sample), so that a run that restarts from a checkpoint sees the same images as an
// uninterrupted run.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/random.h"

namespace sluice::worker {

struct Augmentation {
  uint32_t crop_padding = 0;  // Black pixels added on each side before a crop to the original size.
  bool flip = false;          // Mirrors left to right with probability 1/2.
  // Scales a crop of random shape, with at least this share of the image's area, to the image's
  // size. 0 disables it.
  double random_resized_crop = 0;
};

struct EpochKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
};

// Returns the random numbers for one sample in one epoch.
CounterRandom SampleRandom(EpochKey epoch, uint32_t sample);

struct PlaneShape {
  uint32_t channels = 0;
  uint32_t height = 0;
  uint32_t width = 0;

  size_t bytes() const { return size_t{channels} * height * width; }
};

// Pads, crops and mirrors `from` as `random` decides, and writes the result to `to`. Both spans
// hold channels of height × width bytes.
void CropAndFlip(const Augmentation& augmentation, const PlaneShape& shape,
                 absl::Span<const uint8_t> from, CounterRandom random, absl::Span<uint8_t> to);

// A part of an image, in pixels.
struct PixelBox {
  uint32_t left = 0;
  uint32_t top = 0;
  uint32_t width = 0;
  uint32_t height = 0;
};

// Returns the part of an image that random_resized_crop scales. Its area is at least `least_area`
// times the image's, and its ratio of width to height is between 3 : 4 and 4 : 3 (Szegedy et al.,
// "Going deeper with convolutions", 2014).
PixelBox RandomCrop(uint32_t width, uint32_t height, double least_area, CounterRandom* random);

}  // namespace sluice::worker
