// SPDX-License-Identifier: Apache-2.0
// RuleKernels: the loops of the update rules, compiled for each instruction set. They never use
// fused multiply-add, so that all instruction sets produce the same bits.
#pragma once

#include <cstddef>

namespace sluice::server {

struct SgdNumbers {
  float rate, decay, momentum;
  bool nesterov;
};
// `momentum_slot` must be null if there is no momentum.
void ApplySgd(const SgdNumbers& numbers, const float* gradient, float* parameters,
              float* momentum_slot, size_t count);

struct AdamNumbers {
  float rate;   // Already divided by the bias correction of the first moment.
  float decay;  // Weight decay that is added to the gradient.
  float keep;   // Factor that is applied to the parameters before the update.
  float beta1, rest1, beta2, rest2;
  float root_correction;  // Square root of the bias correction of the second moment.
  float eps;
};
void ApplyAdam(const AdamNumbers& numbers, const float* gradient, float* parameters, float* first,
               float* second, size_t count);

struct RmspropNumbers {
  float rate, decay, alpha, rest, eps, momentum;
};
// `momentum_slot` must be null if there is no momentum.
void ApplyRmsprop(const RmspropNumbers& numbers, const float* gradient, float* parameters,
                  float* squares, float* momentum_slot, size_t count);

}  // namespace sluice::server
