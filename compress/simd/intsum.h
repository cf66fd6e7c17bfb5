// SPDX-License-Identifier: Apache-2.0
// Kernels of codec `intsum`: quantising a block, packing its codes in planes, and adding the codes
// of many senders. A block of c codes of b bits takes h = ceil(c b / 8) bytes. Code i is in byte i
// mod h and begins at bit b floor(i / h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

inline constexpr size_t kIntSumBlock = 256;

// For acc = gradient + residual, sets codes[i] to acc / scale, rounded to nearest even and limited
// to ±largest, and residual = acc - code * scale. `scale` must be a power of two, and `inverse`
// must be 1 / scale. Returns the bits of the largest |acc|.
uint32_t QuantizeToPowerOfTwo(const float* gradient, float* residual, float scale, float inverse,
                              int largest, int8_t* codes, size_t count);

// These pack and unpack a block of at most kIntSumBlock codes. `bits` is 2, 4 or 8.
void PackCodes(const int8_t* codes, int bits, uint8_t* out, size_t count);
void UnpackCodes(const uint8_t* in, int bits, int8_t* codes, size_t count);

// Computes sum[i] += codes[i] * scale.
void AddScaledCodes(const int8_t* codes, float scale, float* sum, size_t count);

// Maximum number of frames in one call of the two functions below.
inline constexpr size_t kCodeFramesMax = 16;
// Adds the codes of `frames` packed blocks of kIntSumBlock elements to `sums`. In the first call of
// a step, `start` is true and the codes overwrite `sums`. The caller must ensure that no sum
// overflows.
void AddPackedToInt8(const uint8_t* const* blocks, size_t frames, int bits, bool start,
                     int8_t* sums);
void AddPackedToInt16(const uint8_t* const* blocks, size_t frames, int bits, bool start,
                      int16_t* sums);

// Computes out[i] = sums[i] * scale / divisor.
void ScaleInt8(const int8_t* sums, float scale, float divisor, float* out, size_t count);
void ScaleInt16(const int16_t* sums, float scale, float divisor, float* out, size_t count);

}  // namespace sluice::compress
