// SPDX-License-Identifier: Apache-2.0
// Tensors and values for tests of compression control.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "base/random.h"

namespace sluice::server {

inline double Normal(CounterRandom* random) {
  const double radius = std::sqrt(-2 * std::log(1 - random->Uniform()));
  return radius * std::cos(2 * std::numbers::pi * random->Uniform());
}

// Returns values distributed like accumulators: many small values and few large ones.
inline std::vector<float> Values(uint64_t seed, size_t count, double scale) {
  CounterRandom random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(scale * Normal(&random) * std::exp(Normal(&random)));
  }
  return values;
}

}  // namespace sluice::server
