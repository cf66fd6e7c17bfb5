// What `eden` makes of a chunk, apart from the transform: blocks and where they lie in a payload,
// signs, scales. Encoders on a processor and on a GPU share it; docs/wire-format.md has the rules.
// Constexpr, as float_bits.h is.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#include "base/float_bits.h"
#include "base/random.h"

namespace sluice::compress {

// Blocks are powers of two from kRotatedMin to kRotatedMax elements.
inline constexpr size_t kRotatedMin = 64;
inline constexpr size_t kRotatedMax = 1024;

constexpr uint32_t RotatedMagnitudesOf(int bits) { return uint32_t{1} << (bits - 1); }

// What code `index` of `bits` (1 to 4), without its sign, stands for: centroids of a normal
// distribution (Lloyd 1957, Max 1960) in 256ths. Whole numbers, so that transforms of them are
// exact.
constexpr float RotatedMagnitude(int bits, uint32_t index) {
  const float all[] = {204,                 //
                       116, 387,            //
                       63,  194, 344, 551,  //
                       33,  99,  168, 241, 322, 414, 530, 700};
  // Not by its place: a table that is asked so lies in a GPU's memory, not in registers.
  float magnitude = 0;
  for (uint32_t i = 0; i < std::size(all); ++i) {
    if (i == RotatedMagnitudesOf(bits) - 1 + index) magnitude = all[i];
  }
  return magnitude;
}

// Block sizes from the first element on: as many as fit of the largest, then each smaller one at
// most once; what is left, below kRotatedMin, is not rotated.
constexpr size_t RotatedBlockSize(size_t left) {
  return left < kRotatedMax ? std::bit_floor(left) : size_t{kRotatedMax};
}
constexpr size_t RotatedCount(size_t count) { return count - count % kRotatedMin; }
// Blocks before the one that begins at element `at`, or of a chunk of so many elements.
constexpr size_t RotatedBlocks(size_t at) {
  return at / kRotatedMax + static_cast<size_t>(std::popcount(at % kRotatedMax / kRotatedMin));
}

// A payload: the signs' key; a byte with the bits of a code, and the number of rotations from
// kRotationsShift on; a scale for each block; the blocks' planes; what is not rotated.
struct RotatedPayload {
  static constexpr size_t kKeySize = sizeof(uint64_t);
  static constexpr int kRotationsShift = 4;
  static constexpr size_t kScaleSize = 3;  // The upper bytes of an fp32.

  size_t count = 0;
  int bits = 1;

  // Of the block that begins at element `at`; likewise below.
  constexpr size_t ScaleAt(size_t at) const {
    return kKeySize + 1 + kScaleSize * RotatedBlocks(at);
  }
  constexpr size_t PlanesAt(size_t at) const {
    return ScaleAt(count) + at / 8 * static_cast<size_t>(bits);
  }
  constexpr size_t RestAt() const { return PlanesAt(RotatedCount(count)); }
  constexpr size_t size() const { return RestAt() + count % kRotatedMin * sizeof(float); }
};

// The signs of 64 elements from `at` on, for a rotation: bits that say which are negated. Words of
// the SplitMix64 generator that begins at the key; 2^32 of them for each rotation.
constexpr uint64_t RotationSigns(uint64_t key, int rotation, size_t at) {
  const uint64_t word = (static_cast<uint64_t>(rotation) << 32) + at / 64 + 1;
  return MixBits(key + 0x9E3779B97F4A7C15u * word);
}

// Scales: normal numbers, below what could overflow with the largest sum of magnitudes.
inline constexpr float kSmallestRotatedScale = 0x1p-126f;
inline constexpr float kLargestRotatedScale = 0x1p98f;
static_assert(double{kRotatedMax} * kRotatedMax * 700 * kLargestRotatedScale <
              std::numeric_limits<float>::max());

// Over a block: of |y[i]| * magnitude, and of magnitude^2.
struct RotatedSums {
  float product = 0;
  float energy = 0;
};

// Of a block whose normalised values have this energy; `unbiased` goes with two rotations. 0: it
// cannot be sent.
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
