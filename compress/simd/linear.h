// SPDX-License-Identifier: Apache-2.0
// Kernels of linear quantization: blocks of at most kLinearBlock values to small integers and back.
// Random numbers are a function of (key, index of the element); see random-inl.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

inline constexpr size_t kLinearBlock = 256;

// Computes residual[i] += gradient[i] and returns the bits of the largest magnitude.
uint32_t AccumulateBlock(const float* gradient, float* residual, size_t count);
// Also computes residual[i] += gradient[i], and returns the least and the largest value. `count`
// must be above 0.
struct ValueRange {
  float least;
  float largest;
};
ValueRange AccumulateRange(const float* gradient, float* residual, size_t count);

// Sets codes[i] to acc[i] * inverse, rounded to nearest even and limited to ±most, and acc[i] -=
// code * scale.
void QuantizeBlock(float scale, float inverse, int most, float* acc, int8_t* codes, size_t count);
// Encodes `blocks` whole blocks of acc = gradient + residual. The results are
// - a bf16 scale for each block: largest / most, rounded up and limited to `scale_max`. If this is
//   not a normal number, the scale and all codes are 0.
// - packed codes (layout: simd/intsum.h; `bits` is 2, 4 or 8).
// - residual = acc - code * scale.
void EncodeLinearBlocks(const float* gradient, float* residual, int bits, uint16_t scale_max,
                        uint16_t* scales, uint8_t* packed, size_t blocks);
// Works like QuantizeBlock, but rounds down or up at random with probabilities that preserve the
// mean.
void QuantizeBlockStochastic(float scale, float inverse, int most, uint64_t key, uint32_t index,
                             float* acc, int8_t* codes, size_t count);

// Sets codes[i] to (acc[i] - least) * inverse, rounded to nearest even, from 0 to `most`, and
// acc[i] -= least + code * scale. The product and the sum are rounded separately.
void QuantizeRange(float least, float scale, float inverse, int most, float* acc, uint8_t* codes,
                   size_t count);
void QuantizeRangeStochastic(float least, float scale, float inverse, int most, uint64_t key,
                             uint32_t index, float* acc, uint8_t* codes, size_t count);
// Computes sum[i] += least + codes[i] * scale.
void AddRange(const uint8_t* codes, float least, float scale, float* sum, size_t count);

// Adds `frames` packed blocks of kLinearBlock codes (layout: simd/intsum.h; `bits` is 2, 4 or 8) to
// one block of `sum`: sum[i] = sum[i] + code * scales[0] + code * scales[1] ..., in this order. The
// kernel prefetches the data `ahead` bytes after each block, because that data is likely to be
// added next.
inline constexpr size_t kLinearFramesMax = 16;
void AddScaledBlocks(const uint8_t* const* blocks, const float* scales, size_t frames, int bits,
                     size_t ahead, float* sum);

// Returns the largest magnitude among the codes. The magnitude of -128 is 128.
int LargestCode(const int8_t* codes, size_t count);

}  // namespace sluice::compress
