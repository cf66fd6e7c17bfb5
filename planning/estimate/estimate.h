// SPDX-License-Identifier: Apache-2.0
// Estimate: the cost of a scenario's steps in time, bytes, money, memory and processors.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "planning/estimate/machine_figures.h"
#include "planning/estimate/scenario.h"
#include "planning/estimate/shard_memory.h"
#include "planning/estimate/step_time.h"
#include "planning/estimate/traffic.h"

namespace sluice::planning {

struct Estimate {
  StepTime time{};
  Traffic traffic{};
  ShardMemory memory{};
  double efficiency = 0;  // Compute time / step time; 0 without compute time.
  double exchanges_per_step = 1;
  double egress_per_step = 0;  // Bytes.
  double shard_cores = 0;      // Cores that one shard keeps busy.
};

// Fails with INVALID_ARGUMENT as CheckScenario and FiguresOf do.
absl::StatusOr<Estimate> EstimateOf(const Scenario& scenario, const MachineFigures& machine);

}  // namespace sluice::planning
