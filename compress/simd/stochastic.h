// Kernels of the unbiased codecs `qsgd` and `natural`: stochastic rounding of a block to codes, and
// codes in bit planes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

inline constexpr size_t kStochasticBlock = 512;

// Codes are a level, with the sign bit of a float where the value is negative; 0 has none. Of a
// whole block: callers pad with zeros. acc = gradient + residual; residual = acc - decoded. Random
// numbers are those of (key, index of the element).

// |acc| becomes one of the two nearest powers of two or 0, whose exponent field is the level. What
// would round beyond 2^127 stays there.
void RoundToPowersOfTwo(const float* gradient, float* residual, uint64_t key, uint32_t index,
                        uint32_t* codes);

// |acc| / step becomes one of the two nearest whole numbers, at most `most`. `inverse` = 1 / step;
// with 0 all codes are 0.
void RoundToSteps(const float* gradient, float* residual, float step, float inverse, uint32_t most,
                  uint64_t key, uint32_t index, uint32_t* codes);

// Of `count` elements, at most a block: the sum of acc^2 in fp64 in 16 lanes, element i in lane
// i mod 16, then the lanes in order.
double SumOfSquares(const float* gradient, const float* residual, size_t count);

// The smallest level above 0 and the largest; 0 if there is none.
struct LevelRange {
  uint32_t smallest;
  uint32_t largest;
};
LevelRange RangeOfLevels(const uint32_t* codes);

// 1 + bits planes of kStochasticBlock / 8 bytes, bit i of which is element i: signs, then the bits
// of level - base from the lowest (0 for a level of 0).
void PackPlanes(const uint32_t* codes, uint32_t base, int bits, uint8_t* planes);
void UnpackPlanes(const uint8_t* planes, uint32_t base, int bits, uint32_t* codes);

// sum[i] += code * step.
void AddSteps(const uint32_t* codes, float step, float* sum);
// sum[i] += ± the power of two with that exponent field, or 0.
void AddPowersOfTwo(const uint32_t* codes, float* sum);

}  // namespace sluice::compress
