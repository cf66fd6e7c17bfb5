// Rounding of finite floats to the shorter formats that frames carry. Branch-free, so that loops
// over them vectorise; constexpr, so that CUDA kernels can use them too.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace sluice {

inline constexpr uint32_t kSignBit = 0x80000000;
inline constexpr uint32_t kInfinityBits = 0x7F800000;

constexpr uint32_t MagnitudeBits(float x) { return std::bit_cast<uint32_t>(x) & ~kSignBit; }
constexpr bool IsFinite(float x) { return MagnitudeBits(x) < kInfinityBits; }

// 2^-k where the largest magnitude is from 2^k on, as far as both are normal: with it, nothing
// overflows or vanishes on the way through many sums.
constexpr float PowerThatNormalizes(uint32_t largest_bits) {
  const int field = 254 - static_cast<int>(largest_bits >> 23);
  const int normal = field < 1 ? 1 : field > 253 ? 253 : field;
  return std::bit_cast<float>(static_cast<uint32_t>(normal) << 23);
}

// IEEE binary16, to nearest even; beyond 65504 it saturates.
constexpr uint16_t ToHalf(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & ~kSignBit;
  const uint32_t normal = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14 the sum with 0.5 rounds to a multiple of 2^-24, the unit of subnormal halves.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  const uint32_t half = magnitude < 0x38800000 ? subnormal : std::min(normal, uint32_t{0x7BFF});
  return static_cast<uint16_t>(half | ((bits & kSignBit) >> 16));
}

// Of a finite half. Chosen by mask, and subnormals read without subnormal floats: both keep loops
// fast.
constexpr float FromHalf(uint16_t half) {
  const uint32_t magnitude = uint32_t{half} & 0x7FFF;
  const uint32_t normal = (magnitude << 13) + 0x38000000;
  const auto subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude | 0x3F000000) - 0.5f);
  const uint32_t mask = magnitude < 0x400 ? ~uint32_t{0} : 0;
  const uint32_t sign = (uint32_t{half} & 0x8000) << 16;
  return std::bit_cast<float>((subnormal & mask) | (normal & ~mask) | sign);
}

// The upper half of a float, to nearest even; saturates at the largest finite one.
constexpr uint16_t ToBfloat(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & ~kSignBit;
  const uint32_t rounded = (magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16;
  return static_cast<uint16_t>(std::min(rounded, uint32_t{0x7F7F}) | ((bits & kSignBit) >> 16));
}

constexpr float FromBfloat(uint16_t bfloat) { return std::bit_cast<float>(uint32_t{bfloat} << 16); }

// 16 significant bits: a float whose lowest byte is 0, which takes 3 bytes in a frame. `x` >= 0;
// saturates.
inline constexpr uint32_t kLargestShortBits = 0x7F7FFF00;
constexpr float ToShortFloat(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7F + ((bits >> 8) & 1)) & ~uint32_t{0xFF};
  return std::bit_cast<float>(std::min(rounded, kLargestShortBits));
}
constexpr float ToShortFloatUp(float x) {
  const uint32_t rounded = (std::bit_cast<uint32_t>(x) + 0xFF) & ~uint32_t{0xFF};
  return std::bit_cast<float>(std::min(rounded, kLargestShortBits));
}

}  // namespace sluice
