// SimData: the tensors of a simulated job and every rank's values at every step, as a function of
// the data seed.
#pragma once

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"
#include "tests/sim/survival.h"

namespace sluice {

inline protocol::TensorTable SimTable() {
  return {{.name = "conv.weight", .shape = {6, 3, 3}, .strides = {}},
          {.name = "conv.bias", .shape = {6}, .strides = {}},
          {.name = "fc1.weight", .shape = {24, 25}, .strides = {}},
          {.name = "fc1.bias", .shape = {24}, .strides = {}},
          {.name = "fc2.weight", .shape = {10, 31}, .strides = {}}};
}

inline protocol::Layout SimLayout(const SurvivalOptions& options,
                                  const protocol::TensorTable& table) {
  absl::StatusOr<protocol::Layout> layout =
      protocol::BuildLayout(table, options.shards, options.compression.layout,
                            protocol::WholeRows(options.compression, table));
  Check(layout.ok(), layout.status().message());
  return *std::move(layout);
}

inline bool SkipsStep(const SurvivalOptions& options, uint32_t rank, uint64_t step) {
  return CounterRandom(options.data_seed, 1, options.first_rank + rank, step).Uniform() <
         options.skip_share;
}

// Of updates on the shards.
inline float SimRate(uint64_t step) { return 0.1f / static_cast<float>(1 + step % 3); }

// Whether there is a step 0, which brings the shards, or ranks that differ or are in racks, rank
// 0's parameters.
inline bool HasStepZero(const SurvivalOptions& options) {
  return !options.parameters_agree || options.rule.has_value() || options.rack_of > 0 ||
         !options.weights.empty();
}

// Step 0: parameters, else gradients.
inline std::vector<std::vector<float>> SimValues(const SurvivalOptions& options,
                                                 const protocol::TensorTable& table, uint32_t rank,
                                                 uint64_t step) {
  rank += options.first_rank;
  std::vector<std::vector<float>> values;
  for (uint32_t tensor = 0; tensor < table.size(); ++tensor) {
    CounterRandom random(options.data_seed, 2 + tensor, rank, step);
    std::vector<float>& of_tensor = values.emplace_back(table[tensor].elements());
    for (float& x : of_tensor) {
      const double u = random.Uniform() + random.Uniform() + random.Uniform() - 1.5;
      // Wide enough that the order of a sum shows in its bits; some exact zeros.
      x = random.Below(16) == 0 ? 0.0f : static_cast<float>(u * std::exp2(random.Below(8)));
    }
  }
  CounterRandom random(options.data_seed, 1000, rank, step);
  if (step > 0 && random.Uniform() < options.nan_share) {
    std::vector<float>& bad = values[random.Below(values.size())];
    bad[random.Below(bad.size())] = random.Below(2) == 0 ? std::numeric_limits<float>::quiet_NaN()
                                                         : std::numeric_limits<float>::infinity();
  }
  return values;
}

}  // namespace sluice
