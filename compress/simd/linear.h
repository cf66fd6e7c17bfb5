// Kernels of linear quantization: blocks of at most kLinearBlock values to small whole numbers and
// back. Random numbers are those of (key, index of the element); random-inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

inline constexpr size_t kLinearBlock = 256;

// Makes residual[i] += gradient[i] and returns the bits of the largest magnitude.
uint32_t AccumulateBlock(const float* gradient, float* residual, size_t count);
// The same, and the least and the largest value. `count` > 0.
struct ValueRange {
  float least;
  float largest;
};
ValueRange AccumulateRange(const float* gradient, float* residual, size_t count);

// codes[i] = acc[i] * inverse, rounded to nearest even, at most ±most; acc[i] -= code * scale.
void QuantizeBlock(float scale, float inverse, int most, float* acc, int8_t* codes, size_t count);
// All of that for `blocks` whole blocks: acc = gradient + residual, a bf16 scale each (largest /
// most, rounded up, at most `scale_max`; 0 where it would not be a normal number: then all codes
// are 0), packed codes (simd/intsum.h has the layout; `bits` is 2, 4 or 8), residual = acc - code *
// scale.
void EncodeLinearBlocks(const float* gradient, float* residual, int bits, uint16_t scale_max,
                        uint16_t* scales, uint8_t* packed, size_t blocks);
// Rounded down or up so that the mean is right, instead.
void QuantizeBlockStochastic(float scale, float inverse, int most, uint64_t key, uint32_t index,
                             float* acc, int8_t* codes, size_t count);

// codes[i] = (acc[i] - least) * inverse, rounded to nearest even, from 0 to `most`; acc[i] -= least
// + code * scale, which is rounded twice.
void QuantizeRange(float least, float scale, float inverse, int most, float* acc, uint8_t* codes,
                   size_t count);
void QuantizeRangeStochastic(float least, float scale, float inverse, int most, uint64_t key,
                             uint32_t index, float* acc, uint8_t* codes, size_t count);
// sum[i] += least + codes[i] * scale.
void AddRange(const uint8_t* codes, float least, float scale, float* sum, size_t count);

// Adds `frames` packed blocks of kLinearBlock codes (simd/intsum.h has the layout; `bits` is 2, 4
// or 8) to one block of `sum`: sum[i] = sum[i] + code * scales[0] + code * scales[1] ..., in this
// order. `ahead` bytes after each block lies what is likely to be added next.
inline constexpr size_t kLinearFramesMax = 16;
void AddScaledBlocks(const uint8_t* const* blocks, const float* scales, size_t frames, int bits,
                     size_t ahead, float* sum);

// The largest magnitude among codes; 128 for -128.
int LargestCode(const int8_t* codes, size_t count);

}  // namespace sluice::compress
