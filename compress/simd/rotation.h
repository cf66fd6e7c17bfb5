// SPDX-License-Identifier: Apache-2.0
// Kernels of codec `eden`: the Walsh-Hadamard transform, and operations on blocks before and after
// it. Sums over a block are computed in 16 lanes (element i in lane i mod 16, in order). Then lanes
// l and l + 8 are added, then l and l + 4, then l and l + 2, then the remaining two.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/simd/rotated_blocks.h"

namespace sluice::compress {

// Transforms x in place without normalising. For each stride 1, 2, 4 and so on, each pair (a, b) at
// that distance becomes (a + b, a - b).
void WalshHadamard(float* x, size_t size);

// Computes y[i] = x[i] * scale, negated if bit i of `signs` is 1. `x` and `y` may be the same.
// Returns the sum of y[i]^2.
float FlipSigns(const float* x, const uint64_t* signs, float scale, float* y, size_t size);

// Selects, for each y[i], the nearest of the magnitudes for `bits` bits, times `unit`. Writes
// `bits` planes of size / 8 bytes each: first the sign (1 means below 0), then the bits of the
// magnitude's index, lowest bit first.
RotatedSums QuantizeRotated(const float* y, float unit, int bits, uint8_t* planes, size_t size);

// Sets each y[i] to the magnitude that its code selects, with its sign.
void ExpandRotated(const uint8_t* planes, int bits, float* y, size_t size);

// Computes sum[i] += y[i] * scale. The product is negated if bit i of `signs` is 1.
void AddFlipped(const float* y, const uint64_t* signs, float scale, float* sum, size_t size);

}  // namespace sluice::compress
