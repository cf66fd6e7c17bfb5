// SPDX-License-Identifier: Apache-2.0
// Filled: values of parameters and inputs that are the same in C++ and Python, because a formula
// computes them instead of a random number generator. reference_models.py has the same formula.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace sluice::worker {

inline constexpr uint32_t kInputStream = 1000;  // Parameters have streams from 0 on.
inline constexpr uint32_t kTargetStream = 1001;

// Returns the j-th number of a stream, in [-1, 1): a hash of 32 bits.
inline double FilledValue(uint32_t stream, uint32_t j) {
  uint32_t x = stream * 1000003u + j;
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  x ^= x >> 16;
  return x / 2147483648.0 - 1;
}

inline at::Tensor FilledTensor(uint32_t stream, at::IntArrayRef sizes, double scale = 1,
                               double shift = 0) {
  const int64_t count = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies());
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  auto* const values = tensor.mutable_data_ptr<double>();
  for (int64_t j = 0; j < count; ++j) {
    values[j] = scale * FilledValue(stream, static_cast<uint32_t>(j)) + shift;
  }
  return tensor;
}

// Returns integers from 0 to `below` − 1.
inline at::Tensor FilledNumbers(uint32_t stream, uint32_t below, at::IntArrayRef sizes) {
  return ((FilledTensor(stream, sizes) + 1) / 2 * static_cast<double>(below)).floor().to(at::kLong);
}

// Weights with several dimensions get He's scale, weights of normalizations are near 1, and biases
// are near 0.
inline void FillParameters(const torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  uint32_t stream = 0;
  for (const auto& entry : module.named_parameters()) {
    const at::Tensor& tensor = entry.value();
    const bool is_matrix = tensor.dim() > 1;
    const double fan_in = is_matrix ? static_cast<double>(tensor.numel() / tensor.size(0)) : 0;
    const double shift = is_matrix || absl::EndsWith(entry.key(), "bias") ? 0 : 1;
    tensor.copy_(
        FilledTensor(stream++, tensor.sizes(), is_matrix ? std::sqrt(6 / fan_in) : 0.1, shift));
  }
}

}  // namespace sluice::worker
