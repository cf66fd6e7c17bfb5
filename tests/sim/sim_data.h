// SPDX-License-Identifier: Apache-2.0
// SimData: the tensors of a simulated job and each rank's values in each step, as functions of the
// data seed.
#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "protocol/exchange.h"
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

// Modes async and ssp exchange buffers in step 0 only. Simulated jobs with relays have none.
inline protocol::TensorTable SimTable(const SurvivalOptions& options) {
  protocol::TensorTable table = SimTable();
  if (IsAsync(options) && options.weights.empty()) {
    table.push_back(
        {.name = "norm", .shape = {12}, .strides = {}, .role = protocol::TensorRole::kBuffer});
  }
  return table;
}

inline protocol::Layout SimLayout(const SurvivalOptions& options,
                                  const protocol::TensorTable& table) {
  absl::StatusOr<protocol::Layout> layout =
      protocol::BuildLayout(table, options.shards, options.compression.layout,
                            protocol::WholeRows(options.compression, table));
  Check(layout.ok(), layout.status().message());
  return *std::move(layout);
}

// Returns whether workers encode the bundle in the step, unless they skip the whole step.
inline bool IsEncoded(const protocol::Layout& layout, uint64_t step, const protocol::Bundle& of) {
  return !of.chunks.empty() && protocol::IsFragmentDue(layout.fragments, of.fragment, step);
}

// Returns whether workers submit the tensor in the step. Buffers are due in step 0 only.
inline bool IsSubmitted(const protocol::TensorTable& table, const protocol::Layout& layout,
                        uint64_t step, uint32_t tensor) {
  if (table[tensor].role == protocol::TensorRole::kBuffer) return step == 0;
  for (const protocol::Chunk& chunk : layout.chunks) {
    if (chunk.tensor != tensor) continue;
    if (protocol::IsFragmentDue(layout.fragments, chunk.fragment, step)) return true;
  }
  return false;
}

// Returns whether no bundle is encoded in the step after this one.
inline bool IsLastEncoded(const protocol::Layout& layout, uint64_t step, uint32_t shard,
                          uint32_t bundle) {
  for (++bundle; shard < layout.bundles.size(); ++shard, bundle = 0) {
    const std::vector<protocol::Bundle>& bundles = layout.bundles[shard];
    for (; bundle < bundles.size(); ++bundle) {
      if (IsEncoded(layout, step, bundles[bundle])) return false;
    }
  }
  return true;
}

// Returns a shard's memory limit that covers sums, receivers' state and windows, but hardly any
// log.
uint64_t TightMemory(const SurvivalOptions& options, const protocol::TensorTable& table,
                     const protocol::Layout& layout, uint32_t shard);

// `course` is the term in async and ssp, where training takes another course after a rollback.
inline bool SkipsStep(const SurvivalOptions& options, uint32_t rank, uint64_t step,
                      uint32_t course = 0) {
  return CounterRandom(options.data_seed, 1 + 5000 * course, options.first_rank + rank, step)
             .Uniform() < options.skip_share;
}

// The learning rate of updates on the shards.
inline float SimRate(uint64_t step) { return 0.1f / static_cast<float>(1 + step % 3); }

// What a rank's contribution to a step is made from.
inline protocol::Work SimWork(uint32_t rank, uint64_t step) {
  return {.samples = 1 + (7 * rank + 3 * step) % 40,
          .steps = 1 + (rank + step) % 5,
          .slack_us = (rank + step) % 3 == 0 ? 0 : 500 * ((3 * rank + step) % 7)};
}

// Returns whether the job has a step 0, which gives rank 0's parameters to the shards, to ranks
// whose parameters differ, or to ranks in racks.
inline bool HasStepZero(const SurvivalOptions& options) {
  return !options.parameters_agree || options.rule.has_value() || options.rack_of > 0 ||
         !options.weights.empty();
}

// Makes a value from one draw. Magnitudes vary so widely that the order of a sum shows in the bits
// of the result. One value in 16 is exactly zero.
inline float SimValue(uint64_t drawn) {
  if ((drawn & 15) == 0) return 0.0f;
  const auto of = [drawn](int shift) { return static_cast<float>(drawn >> shift & 0xFFFF); };
  // Dividing by three fills all bits of the mantissa.
  const float u = (of(16) + of(32) + of(48)) * 0x1.0p-16f / 3 - 0.5f;
  return u * static_cast<float>(1u << (drawn >> 4 & 7));
}

// Returns parameters in step 0 and gradients in later steps.
inline std::vector<std::vector<float>> SimValues(const SurvivalOptions& options,
                                                 const protocol::TensorTable& table, uint32_t rank,
                                                 uint64_t step, uint32_t course = 0) {
  rank += options.first_rank;
  std::vector<std::vector<float>> values;
  for (uint32_t tensor = 0; tensor < table.size(); ++tensor) {
    CounterRandom random(options.data_seed, 2 + tensor + 5000 * course, rank, step);
    std::vector<float>& of_tensor = values.emplace_back(table[tensor].elements());
    if (options.quiet_steps > 0 && step + options.quiet_steps > options.steps) continue;
    for (float& x : of_tensor) x = SimValue(random.Next());
  }
  CounterRandom random(options.data_seed, 1000 + 5000 * course, rank, step);
  if (step > 0 && random.Uniform() < options.nan_share) {
    std::vector<float>& bad = values[random.Below(values.size())];
    bad[random.Below(bad.size())] = random.Below(2) == 0 ? std::numeric_limits<float>::quiet_NaN()
                                                         : std::numeric_limits<float>::infinity();
  }
  return values;
}

}  // namespace sluice
