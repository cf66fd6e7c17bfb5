// SPDX-License-Identifier: Apache-2.0
// Kernels of sparse codecs. One pass over gradient and residual selects the large elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// Number of elements after the kept ones that SelectAbove may overwrite in `positions` and
// `values`.
inline constexpr size_t kSelectSlack = 64;

// Computes residual[i] += gradient[i]. For each sum whose magnitude is at least `tau` > 0, writes
// `first` + i and the sum, in order. Returns the number of these sums. `gradient` and `residual`
// must not overlap.
size_t SelectAbove(const float* gradient, float* residual, size_t count, float tau, uint32_t first,
                   uint32_t* positions, float* values);

// Computes gaps[i] = positions[i] - positions[i - 1] - 1. The first gap counts from position 0.
void GapsOf(const uint32_t* positions, size_t count, uint32_t* gaps);

}  // namespace sluice::compress
