// SPDX-License-Identifier: Apache-2.0
// StepPlan: when a worker's exchange has the gradients of each bundle, and for how long the worker
// computes. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/simulation/cluster.h"
#include "planning/simulation/event_queue.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::planning {

struct BundlePlace {
  uint32_t shard = 0;
  uint32_t bundle = 0;
  // The share of the time during which gradients become ready, in [0, 1], after which all gradients
  // of the bundle are ready.
  double ready = 1;
};

// Returns the bundles of an exchange's fragment in the order in which they become ready. Gradients
// become ready from the last tensor to the first, each after a time in proportion to its elements.
std::vector<BundlePlace> ReadyOrder(const protocol::TensorTable& table,
                                    const protocol::Layout& layout, uint32_t fragment);

struct ComputeSpec {
  double step_s = 0;             // One forward and backward pass.
  double overlap = 0;            // The share of step_s in which gradients become ready.
  uint64_t steps_before = 1;     // Steps of an exchange before its gradients are ready.
  uint64_t steps_meanwhile = 0;  // Steps between sending and adopting the result.
};

// Returns exp(sigma * z), where z has the standard normal distribution. Equal arguments give equal
// factors.
double LognormalFactor(double sigma, uint64_t seed, uint64_t a, uint64_t b);

// Returns the factor of a worker's computing time in an exchange. Equal arguments give equal
// factors.
double ComputeFactor(const StragglerSpec& stragglers, uint64_t seed, uint32_t worker,
                     uint64_t step);

}  // namespace sluice::planning
