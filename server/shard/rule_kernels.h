// The loops of update rules, for whatever instructions there are. No fused multiply-add anywhere:
// all instruction sets give the same bits.
#pragma once

#include <cstddef>

namespace sluice::server {

struct SgdNumbers {
  float rate, decay, momentum;
  bool nesterov;
};
// `momentum_slot` may be null; then there is no momentum.
void ApplySgd(const SgdNumbers& numbers, const float* gradient, float* parameters,
              float* momentum_slot, size_t count);

struct AdamNumbers {
  float rate;   // Divided by the first moment's bias correction.
  float decay;  // Added to the gradient.
  float keep;   // What parameters are multiplied by first.
  float beta1, rest1, beta2, rest2;
  float root_correction;  // Root of the second moment's.
  float eps;
};
void ApplyAdam(const AdamNumbers& numbers, const float* gradient, float* parameters, float* first,
               float* second, size_t count);

struct RmspropNumbers {
  float rate, decay, alpha, rest, eps, momentum;
};
// `momentum_slot` may be null, as above.
void ApplyRmsprop(const RmspropNumbers& numbers, const float* gradient, float* parameters,
                  float* squares, float* momentum_slot, size_t count);

}  // namespace sluice::server
