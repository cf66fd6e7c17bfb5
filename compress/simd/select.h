// Kernels of sparse codecs: one pass over gradient and residual that picks what is large.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// Beyond what is kept, `positions` and `values` of SelectAbove must have room for so many.
inline constexpr size_t kSelectSlack = 64;

// Makes residual[i] += gradient[i] and writes, in order, `first` + i and that sum where its
// magnitude is at least `tau` > 0; returns how many. `gradient` and `residual` do not overlap.
size_t SelectAbove(const float* gradient, float* residual, size_t count, float tau, uint32_t first,
                   uint32_t* positions, float* values);

// gaps[i] = positions[i] - positions[i - 1] - 1, the first counted from the start.
void GapsOf(const uint32_t* positions, size_t count, uint32_t* gaps);

}  // namespace sluice::compress
