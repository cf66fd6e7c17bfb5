// Kernels over gradient + residual that all codecs share. docs/wire-format.md has the rules of
// arithmetic that make results equal on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// The bits of the largest |a[i] + b[i]|; `b` null: of |a[i]|. Infinities and NaNs are above all
// finite numbers.
uint32_t LargestMagnitudeBits(const float* a, const float* b, size_t count);

// sum[i] += scale * x[i], rounded twice.
void AddScaled(float scale, const float* x, float* sum, size_t count);

// The same of `count` floats that lie at `x`, aligned or not.
void AddScaledBytes(float scale, const std::byte* x, float* sum, size_t count);
// sum[i] += x[i], likewise.
void AddBytes(const std::byte* x, float* sum, size_t count);

// x[i] /= divisor.
void DivideBy(float divisor, float* x, size_t count);

}  // namespace sluice::compress
