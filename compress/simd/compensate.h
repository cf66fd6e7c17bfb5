// SPDX-License-Identifier: Apache-2.0
// Kernels of compensators. Every product and every sum is rounded separately.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// Computes out = momentum * velocity + factor * gradient, element by element. `out` may be
// `velocity`, or null if the values are not needed. Returns the bits of the largest |out +
// residual|.
uint32_t StepMomentum(float momentum, float factor, const float* gradient, const float* velocity,
                      const float* residual, size_t count, float* out);

// Computes out = a - b. `out` may be null. Returns the bits of the largest magnitude.
uint32_t Subtract(const float* a, const float* b, size_t count, float* out);

// Computes sum += factor * x.
void AddScaled(float factor, const float* x, size_t count, float* sum);

// Sets velocity = 0 wherever sent != 0.
void ClearWhereSent(const float* sent, size_t count, float* velocity);

// Returns the sum of x[i]^2 in fp64: element i is added to lane i mod 16, and then the lanes are
// added in order.
double SumOfSquares(const float* x, size_t count);

}  // namespace sluice::compress
