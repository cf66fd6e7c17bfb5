// SPDX-License-Identifier: Apache-2.0
// Kernels of the unbiased codecs `qsgd` and `natural`: stochastic rounding of a block to codes, and
// storage of codes in bit planes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

inline constexpr size_t kStochasticBlock = 512;

// A code is a level plus, if the value is negative, the sign bit of a float. A level of 0 has no
// sign. All kernels handle a whole block, which callers pad with zeros. acc = gradient + residual;
// residual = acc - decoded. Random numbers are a function of (key, index of the element).

// Rounds |acc| to one of the two nearest powers of two or to 0. The level is the exponent field.
// Values that would round to more than 2^127 become 2^127.
void RoundToPowersOfTwo(const float* gradient, float* residual, uint64_t key, uint32_t index,
                        uint32_t* codes);

// Rounds |acc| / step to one of the two nearest integers, limited to `most`. `inverse` must be 1 /
// step; if it is 0, all codes are 0.
void RoundToSteps(const float* gradient, float* residual, float step, float inverse, uint32_t most,
                  uint64_t key, uint32_t index, uint32_t* codes);

// Returns the sum of acc^2 over `count` elements, at most one block. The sum is in fp64 and uses 16
// lanes: element i is added to lane i mod 16, and then the lanes are added in order.
double SumOfSquares(const float* gradient, const float* residual, size_t count);

// The smallest level above 0 and the largest level. Both are 0 if all levels are 0.
struct LevelRange {
  uint32_t smallest;
  uint32_t largest;
};
LevelRange RangeOfLevels(const uint32_t* codes);

// Packs 1 + bits planes of kStochasticBlock / 8 bytes each, in which bit i belongs to element i.
// The first plane contains signs. The others contain the bits of level - base, lowest bit first (0
// for a level of 0).
void PackPlanes(const uint32_t* codes, uint32_t base, int bits, uint8_t* planes);
void UnpackPlanes(const uint8_t* planes, uint32_t base, int bits, uint32_t* codes);

// Computes sum[i] += code * step.
void AddSteps(const uint32_t* codes, float step, float* sum);
// Adds the decoded value of each code to sum[i]: 0, or a power of two with the code's sign.
void AddPowersOfTwo(const uint32_t* codes, float* sum);

}  // namespace sluice::compress
