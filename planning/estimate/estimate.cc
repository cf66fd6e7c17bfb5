// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/estimate.h"

namespace sluice::planning {

absl::StatusOr<Estimate> EstimateOf(const Scenario& scenario, const MachineFigures& machine) {
  if (absl::Status status = CheckScenario(scenario); !status.ok()) return status;
  const absl::StatusOr<StepTime> time = StepTimeOf(scenario, machine);
  if (!time.ok()) return time.status();
  const absl::StatusOr<Traffic> traffic = TrafficOf(scenario, machine);
  if (!traffic.ok()) return traffic.status();
  Estimate estimate{.time = *time, .traffic = *traffic, .memory = MemoryOf(scenario, *traffic)};
  if (time->step_s > 0) {
    estimate.efficiency = scenario.compute_s / time->step_s;
    estimate.shard_cores = time->shard_cpu_s / time->step_s;
  }
  const LocalSteps& local = scenario.local;
  if (local.steps > 1) {
    estimate.exchanges_per_step = static_cast<double>(local.fragments) / local.steps;
  }
  estimate.egress_per_step = traffic->egress * estimate.exchanges_per_step;
  return estimate;
}

}  // namespace sluice::planning
