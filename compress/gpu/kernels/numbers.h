// SPDX-License-Identifier: Apache-2.0
// Arithmetic that kernels share: the rules in docs/wire-format.md for single numbers. Must be
// compiled with -fmad=false, because a fused multiply-add would give different bits.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float_bits.h"
#include "base/random.h"

namespace sluice::compress::gpu {

// Random 32-bit numbers, as a function of (key, index).
class IndexedRandom {
 public:
  constexpr explicit IndexedRandom(uint64_t key)
      : low_(static_cast<uint32_t>(MixBits(key))),
        high_(static_cast<uint32_t>(MixBits(key) >> 32)) {}

  constexpr uint32_t At(uint32_t index) const {
    uint32_t x = index + low_;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    x = x ^ (x >> 16) ^ high_;
    x = x * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return x ^ (x >> 16);
  }

 private:
  uint32_t low_, high_;
};

// Returns a number in [0, 1).
constexpr float Uniform(uint32_t draw) { return static_cast<float>(draw >> 8) * 0x1p-24f; }

// Rounds to nearest even. |x| must be at most 2^22.
constexpr float Round(float x) {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

// Rounds down to an integer. |x| must be below 2^31.
constexpr float Floor(float x) {
  const auto whole = static_cast<float>(static_cast<int32_t>(x));
  return whole > x ? whole - 1 : whole;
}

// Rounds down, or up with a probability that equals the fractional part.
constexpr float RoundAtRandom(float x, uint32_t draw) {
  const float below = Floor(x);
  return below + (Uniform(draw) < x - below ? 1.0f : 0.0f);
}

constexpr float Clamp(float x, float least, float most) {
  return x < least ? least : x > most ? most : x;
}

constexpr float Magnitude(float x) { return std::bit_cast<float>(MagnitudeBits(x)); }

// Number of lanes in which the processor sums many floats: element i is added to lane i mod
// kSumLanes, in order. A different number of lanes would give different bits.
inline constexpr int kSumLanes = 16;
// Adds all lanes: first lanes l and l + 8, then l and l + 4, then l and l + 2, then the remaining
// two.
constexpr float SumOfLanes(const float* lanes) {
  float sums[kSumLanes];
  for (int i = 0; i < kSumLanes; ++i) sums[i] = lanes[i];
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// Unlike FromHalf, also converts infinities and NaNs.
constexpr float WidenHalf(uint16_t half) {
  if ((half & 0x7FFF) < 0x7C00) return FromHalf(half);
  return std::bit_cast<float>((uint32_t{half} & 0x8000) << 16 | kInfinityBits |
                              (uint32_t{half} & 0x3FF) << 13);
}

}  // namespace sluice::compress::gpu
