// Kernels of compensators. Every product and every sum is rounded by itself.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// out = momentum * velocity + factor * gradient, element by element; `out` may be `velocity`, or
// null: nothing is written. Returns the bits of the largest |out + residual|.
uint32_t StepMomentum(float momentum, float factor, const float* gradient, const float* velocity,
                      const float* residual, size_t count, float* out);

// out = a - b; `out` may be null. Returns the bits of the largest magnitude.
uint32_t TakeDifference(const float* a, const float* b, size_t count, float* out);

// sum += factor * x.
void AddScaled(float factor, const float* x, size_t count, float* sum);

// velocity = 0 wherever sent != 0.
void ClearWhereSent(const float* sent, size_t count, float* velocity);

// In fp64: element i goes to lane i mod 16, lanes are added in order.
double SumOfSquares(const float* x, size_t count);

}  // namespace sluice::compress
