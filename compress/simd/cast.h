// SPDX-License-Identifier: Apache-2.0
// Kernels of the casts fp16, bf16 and fp8: gradient + residual to shorter floats and back. Random
// numbers are a function of (key, index of the element); see random-inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// Rounding of a cast. Stochastic rounding rounds the magnitude down or up with probabilities that
// preserve the mean.
struct CastRounding {
  bool stochastic = false;
  uint64_t key = 0;
  uint32_t index = 0;  // Index of the first element.
};

// Sets codes[i] to acc = gradient + residual in the format, saturated, and residual = acc -
// decoded. If `residual` is null, the gradient alone is rounded to nearest.
void ToFp16(const float* gradient, float* residual, const CastRounding& rounding, uint16_t* codes,
            size_t count);
void ToBf16(const float* gradient, float* residual, const CastRounding& rounding, uint16_t* codes,
            size_t count);
// Computes sum[i] += decoded. Codes must be finite.
void AddFp16(const uint16_t* codes, float* sum, size_t count);
void AddBf16(const uint16_t* codes, float* sum, size_t count);
// Computes values[i] = decoded * scale. Also accepts infinities and NaNs.
void WidenFp16(const uint16_t* codes, float scale, float* values, size_t count);
void WidenBf16(const uint16_t* codes, float scale, float* values, size_t count);
// Returns the largest code, ignoring signs.
uint16_t LargestHalf(const uint16_t* codes, size_t count);

// An 8-bit format with a sign, e bits of exponent and m bits of mantissa, and with subnormal
// numbers. Codes above `largest` are infinities and NaNs.
struct Fp8Format {
  int mantissa;
  int bias;
  uint8_t largest;
};
inline constexpr Fp8Format kFp8E4m3 = {3, 7, 0x7E};   // Magnitudes up to 448.
inline constexpr Fp8Format kFp8E5m2 = {2, 15, 0x7B};  // Magnitudes up to 57344.

// Sets codes[i] to acc[i] * inverse in the format, saturated, and acc[i] -= decoded * scale. The
// product is exact if the scale has at most 16 significant bits.
void ToFp8(const Fp8Format& format, float scale, float inverse, const CastRounding& rounding,
           float* acc, uint8_t* codes, size_t count);
// Computes sum[i] += decoded * scale.
void AddFp8(const Fp8Format& format, float scale, const uint8_t* codes, float* sum, size_t count);

}  // namespace sluice::compress
