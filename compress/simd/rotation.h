// Kernels of codec `eden`: the Walsh-Hadamard transform, and blocks before and after it.
// Sums over a block have 16 lanes (element i in lane i mod 16, in order), then lanes l and l + 8
// are added, l and l + 4, l and l + 2, and the two that are left.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/simd/rotated_blocks.h"

namespace sluice::compress {

// In place, not normalised: for stride 1, 2, 4, ... the pairs (a, b) at that distance become
// (a + b, a - b).
void WalshHadamard(float* x, size_t size);

// y[i] = x[i] * scale, negated where bit i of `signs` is 1; in place if both are
// the same. Returns the sum of y[i]^2.
float FlipSigns(const float* x, const uint64_t* signs, float scale, float* y, size_t size);

// Picks for each y[i] the nearest of the bits' magnitudes times `unit`. Writes `bits` planes of
// size / 8 bytes: the sign (1: below 0), then the magnitude's index from its lowest bit on.
RotatedSums QuantizeRotated(const float* y, float unit, int bits, uint8_t* planes, size_t size);

// y[i] = ± the magnitude.
void ExpandRotated(const uint8_t* planes, int bits, float* y, size_t size);

// sum[i] += y[i] * scale, the product negated where bit i of `signs` is 1.
void AddFlipped(const float* y, const uint64_t* signs, float scale, float* sum, size_t size);

}  // namespace sluice::compress
