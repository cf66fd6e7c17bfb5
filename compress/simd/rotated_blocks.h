// SPDX-License-Identifier: Apache-2.0
// The parts of `eden` other than the transform: blocks and their offsets in a payload, signs, and
// scales. The CPU and GPU encoders share this code. docs/wire-format.md defines the rules. The
// functions are constexpr for the reason in float_bits.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#include "base/device_functions.h"
#include "base/float_bits.h"
#include "base/random.h"

namespace sluice::compress {

// Block sizes are powers of two from kRotatedMin to kRotatedMax elements.
inline constexpr size_t kRotatedMin = 64;
inline constexpr size_t kRotatedMax = 1024;

constexpr uint32_t RotatedMagnitudesOf(int bits) { return uint32_t{1} << (bits - 1); }

// Returns the value of code `index` of `bits` (1 to 4) bits, without its sign. The values are
// centroids of a normal distribution (Lloyd 1957, Max 1960) in 256ths. They are integers, which
// makes transforms of them exact.
constexpr float RotatedMagnitude(int bits, uint32_t index) {
  const float all[] = {204,                 //
                       116, 387,            //
                       63,  194, 344, 551,  //
                       33,  99,  168, 241, 322, 414, 530, 700};
  // The loop avoids indexing the array, because a GPU keeps an array with a variable index in
  // memory and not in registers.
  float magnitude = 0;
  for (uint32_t i = 0; i < std::size(all); ++i) {
    if (i == RotatedMagnitudesOf(bits) - 1 + index) magnitude = all[i];
  }
  return magnitude;
}

// Returns the size of the next block. A chunk begins with as many blocks of the largest size as
// possible, followed by at most one of each smaller size. The remaining elements, fewer than
// kRotatedMin, are not rotated.
constexpr size_t RotatedBlockSize(size_t left) {
  return left < kRotatedMax ? BitFloor(left) : size_t{kRotatedMax};
}
constexpr size_t RotatedCount(size_t count) { return count - count % kRotatedMin; }
// Returns the number of blocks that precede element `at`, which is also the number of blocks in a
// chunk of `at` elements.
constexpr size_t RotatedBlocks(size_t at) {
  return at / kRotatedMax +
         static_cast<size_t>(PopCount(static_cast<uint32_t>(at % kRotatedMax / kRotatedMin)));
}

// Layout of a payload: the key of the signs; a byte with the number of bits per code and, from bit
// kRotationsShift on, the number of rotations; a scale for each block; the planes of the blocks;
// the elements that are not rotated.
struct RotatedPayload {
  static constexpr size_t kKeySize = sizeof(uint64_t);
  static constexpr int kRotationsShift = 4;
  static constexpr size_t kScaleSize = 3;  // The upper 3 bytes of an fp32.

  size_t count = 0;
  int bits = 1;

  // These return offsets for the block that begins at element `at`.
  constexpr size_t ScaleAt(size_t at) const {
    return kKeySize + 1 + kScaleSize * RotatedBlocks(at);
  }
  constexpr size_t PlanesAt(size_t at) const {
    return ScaleAt(count) + at / 8 * static_cast<size_t>(bits);
  }
  constexpr size_t RestAt() const { return PlanesAt(RotatedCount(count)); }
  constexpr size_t size() const { return RestAt() + count % kRotatedMin * sizeof(float); }
};

// Returns the signs of 64 elements for a rotation, beginning at element `at`; set bits mark negated
// elements. The signs are words of the SplitMix64 generator that starts at the key. Each rotation
// has 2^32 words.
constexpr uint64_t RotationSigns(uint64_t key, int rotation, size_t at) {
  const uint64_t word = (static_cast<uint64_t>(rotation) << 32) + at / 64 + 1;
  return MixBits(key + 0x9E3779B97F4A7C15u * word);
}

// Scales are normal numbers. They are below the limit at which the largest sum of magnitudes could
// overflow.
inline constexpr float kSmallestRotatedScale = 0x1p-126f;
inline constexpr float kLargestRotatedScale = 0x1p98f;
static_assert(double{kRotatedMax} * kRotatedMax * 700 * kLargestRotatedScale <
              std::numeric_limits<float>::max());

// Sums over a block: the sum of |y[i]| * magnitude, and the sum of magnitude^2.
struct RotatedSums {
  float product = 0;
  float energy = 0;
};

// Returns the scale of a block. `energy` is the energy of the block's normalised values. `unbiased`
// must be true for two rotations. Returns 0 if the block cannot be sent.
constexpr float RotatedScale(const RotatedSums& sums, float energy, float normalizer, size_t size,
                             bool unbiased) {
  if (!(energy > 0) || !(sums.product > 0)) return 0;
  const float scale =
      (unbiased ? energy / sums.product : sums.product / sums.energy) / static_cast<float>(size);
  const float scaled = ToShortFloat(scale) * (1 / normalizer);
  if (scaled < kSmallestRotatedScale) return 0;
  return scaled < kLargestRotatedScale ? scaled : float{kLargestRotatedScale};
}

}  // namespace sluice::compress
