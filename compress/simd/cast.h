// Kernels of the casts fp16, bf16 and fp8: gradient + residual to shorter floats and back. Random
// numbers are those of (key, index of the element); random-inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// How a cast rounds. At random: down or up in magnitude so that the mean is right.
struct CastRounding {
  bool stochastic = false;
  uint64_t key = 0;
  uint32_t index = 0;  // Of the first element.
};

// acc = gradient + residual; codes[i] is acc in the format, saturated; residual = acc - decoded.
// `residual` null: there is none, and rounding is to nearest.
void ToFp16(const float* gradient, float* residual, const CastRounding& rounding, uint16_t* codes,
            size_t count);
void ToBf16(const float* gradient, float* residual, const CastRounding& rounding, uint16_t* codes,
            size_t count);
// sum[i] += decoded. Of finite codes.
void AddFp16(const uint16_t* codes, float* sum, size_t count);
void AddBf16(const uint16_t* codes, float* sum, size_t count);
// values[i] = decoded * scale, infinities and NaNs too.
void WidenFp16(const uint16_t* codes, float scale, float* values, size_t count);
void WidenBf16(const uint16_t* codes, float scale, float* values, size_t count);
// The largest code without its sign.
uint16_t LargestHalf(const uint16_t* codes, size_t count);

// 8 bits: a sign, e bits of exponent and m of mantissa, with subnormal numbers. Codes from
// `largest` + 1 on are infinities and NaNs.
struct Fp8Format {
  int mantissa;
  int bias;
  uint8_t largest;
};
inline constexpr Fp8Format kFp8E4m3 = {3, 7, 0x7E};   // To 448.
inline constexpr Fp8Format kFp8E5m2 = {2, 15, 0x7B};  // To 57344.

// codes[i] is acc[i] * inverse in the format, saturated; acc[i] -= decoded * scale. A scale with at
// most 16 significant bits makes the product exact.
void ToFp8(const Fp8Format& format, float scale, float inverse, const CastRounding& rounding,
           float* acc, uint8_t* codes, size_t count);
// sum[i] += decoded * scale.
void AddFp8(const Fp8Format& format, float scale, const uint8_t* codes, float* sum, size_t count);

}  // namespace sluice::compress
