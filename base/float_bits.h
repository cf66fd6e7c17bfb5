// SPDX-License-Identifier: Apache-2.0
// Rounding of finite floats to the shorter formats that frames carry. The functions have no
// branches, so that compilers can vectorise loops over them. They are constexpr, so that CUDA
// kernels can use them too.
#pragma once

#include <bit>
#include <cstdint>

#include "base/device_functions.h"

namespace sluice {

inline constexpr uint32_t kSignBit = 0x80000000;
inline constexpr uint32_t kInfinityBits = 0x7F800000;

constexpr uint32_t MagnitudeBits(float x) { return std::bit_cast<uint32_t>(x) & ~kSignBit; }
constexpr bool IsFinite(float x) { return MagnitudeBits(x) < kInfinityBits; }

// Returns 2^-k if the largest magnitude is in [2^k, 2^(k+1)). The exponent is clamped so that the
// result is a normal float. Values multiplied by the result neither overflow nor vanish in long
// chains of sums.
constexpr float PowerThatNormalizes(uint32_t largest_bits) {
  const int field = 254 - static_cast<int>(largest_bits >> 23);
  const int normal = field < 1 ? 1 : field > 253 ? 253 : field;
  return std::bit_cast<float>(static_cast<uint32_t>(normal) << 23);
}

// Rounds to the nearest IEEE binary16 value, ties to even. Results saturate at 65504.
constexpr uint16_t ToHalf(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & ~kSignBit;
  const uint32_t normal = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  // If the magnitude is below 2^-14, adding 0.5 rounds it to a multiple of 2^-24, the unit of
  // subnormal halves.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  const uint32_t half = magnitude < 0x38800000 ? subnormal : Min(normal, uint32_t{0x7BFF});
  return static_cast<uint16_t>(half | ((bits & kSignBit) >> 16));
}

// Converts a finite half to a float. The function uses masks instead of branches and computes
// subnormal halves without subnormal floats; both techniques keep loops fast.
constexpr float FromHalf(uint16_t half) {
  const uint32_t magnitude = uint32_t{half} & 0x7FFF;
  const uint32_t normal = (magnitude << 13) + 0x38000000;
  const auto subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude | 0x3F000000) - 0.5f);
  const uint32_t mask = magnitude < 0x400 ? ~uint32_t{0} : 0;
  const uint32_t sign = (uint32_t{half} & 0x8000) << 16;
  return std::bit_cast<float>((subnormal & mask) | (normal & ~mask) | sign);
}

// Rounds to the nearest bfloat16 (the upper half of a float), ties to even. Results saturate at the
// largest finite value.
constexpr uint16_t ToBfloat(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & ~kSignBit;
  const uint32_t rounded = (magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16;
  return static_cast<uint16_t>(Min(rounded, uint32_t{0x7F7F}) | ((bits & kSignBit) >> 16));
}

constexpr float FromBfloat(uint16_t bfloat) { return std::bit_cast<float>(uint32_t{bfloat} << 16); }

// Rounds to 16 significant bits. The lowest byte of the resulting float is 0, so a frame stores the
// float in 3 bytes. `x` must be >= 0. Results saturate.
inline constexpr uint32_t kLargestShortBits = 0x7F7FFF00;
constexpr float ToShortFloat(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7F + ((bits >> 8) & 1)) & ~uint32_t{0xFF};
  return std::bit_cast<float>(Min(rounded, kLargestShortBits));
}
constexpr float ToShortFloatUp(float x) {
  const uint32_t rounded = (std::bit_cast<uint32_t>(x) + 0xFF) & ~uint32_t{0xFF};
  return std::bit_cast<float>(Min(rounded, kLargestShortBits));
}

}  // namespace sluice
