// Arithmetic that kernels share: the rules of docs/wire-format.md, one number at a time. Compiled
// with -fmad=false: a fused multiplication and addition would give other bits.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float_bits.h"
#include "base/random.h"

namespace sluice::compress::gpu {

// The 32 bits of (key, index).
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

// From 0 to 1, not 1.
constexpr float Uniform(uint32_t draw) { return static_cast<float>(draw >> 8) * 0x1p-24f; }

// To nearest even; |x| at most 2^22.
constexpr float Round(float x) {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

// To a whole number below; |x| below 2^31.
constexpr float Floor(float x) {
  const auto whole = static_cast<float>(static_cast<int32_t>(x));
  return whole > x ? whole - 1 : whole;
}

// Down, or up with the probability of what is above the whole number.
constexpr float RoundAtRandom(float x, uint32_t draw) {
  const float below = Floor(x);
  return below + (Uniform(draw) < x - below ? 1.0f : 0.0f);
}

constexpr float Clamp(float x, float least, float most) {
  return x < least ? least : x > most ? most : x;
}

constexpr float Magnitude(float x) { return std::bit_cast<float>(MagnitudeBits(x)); }

// The processor's sums of many floats have so many lanes: element i is in lane i mod kSumLanes, in
// order. Sums with other lanes would have other bits.
inline constexpr int kSumLanes = 16;
// Of all lanes: l and l + 8 are added, l and l + 4, l and l + 2, and the two that are left.
constexpr float SumOfLanes(const float* lanes) {
  float sums[kSumLanes];
  for (int i = 0; i < kSumLanes; ++i) sums[i] = lanes[i];
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// With infinities and NaNs, which FromHalf does not know.
constexpr float WidenHalf(uint16_t half) {
  if ((half & 0x7FFF) < 0x7C00) return FromHalf(half);
  return std::bit_cast<float>((uint32_t{half} & 0x8000) << 16 | kInfinityBits |
                              (uint32_t{half} & 0x3FF) << 13);
}

}  // namespace sluice::compress::gpu
