// SPDX-License-Identifier: Apache-2.0
// Kernels over gradient + residual that all codecs share. The arithmetic rules in
// docs/wire-format.md make results equal on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// Returns the bits of the largest |a[i] + b[i]|, or of the largest |a[i]| if `b` is null.
// Infinities and NaNs compare above all finite numbers.
uint32_t LargestMagnitudeBits(const float* a, const float* b, size_t count);

// Computes sum[i] += scale * x[i]. The product and the sum are rounded separately.
void AddScaled(float scale, const float* x, float* sum, size_t count);

// Computes the same for `count` floats at `x`, which may be unaligned.
void AddScaledBytes(float scale, const std::byte* x, float* sum, size_t count);
// Computes sum[i] += x[i] for floats that may be unaligned.
void AddBytes(const std::byte* x, float* sum, size_t count);

// Computes x[i] /= divisor.
void DivideBy(float divisor, float* x, size_t count);

}  // namespace sluice::compress
