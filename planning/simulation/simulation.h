// SPDX-License-Identifier: Apache-2.0
// Simulate: runs a job on simulated machines and links, event by event. The shards, the workers'
// pipelines and the compression control are the real cores. Frames are not made: each message has
// the size that the codecs' prices give (ByteModel), and encoding, adding and messages take the
// processor time of MachineCosts. Pure: equal specs give equal reports.
//
// Left out: the coordinator, checkpoints, buffers, relays, guards, TCP's slow start, and the first
// packets of a connection. With fixed membership, a worker that is down continues where it stopped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "job/job_spec.h"
#include "planning/simulation/cluster.h"
#include "planning/simulation/machine_costs.h"
#include "protocol/tensor_table.h"

namespace sluice::planning {

struct SimulationSpec {
  // Mode, membership, quorum, codecs, control, local steps, and the numbers of workers and shards.
  job::JobSpec job;
  protocol::TensorTable table;  // Trained tensors only.
  Cluster cluster{};
  MachineCosts costs{};
  // Forward and backward pass of one step, in seconds.
  double compute_s = 0;
  // The share of compute_s, at its end, during which gradients become ready, the last tensor first.
  // With 0, all are ready at the end.
  double overlap = 0;
  uint64_t steps = 30;  // Exchanges of each worker.
  uint64_t warmup = 3;  // The first exchanges, which the distributions leave out.
  uint64_t events_max = 100'000'000;
};

// Quantiles of values in seconds.
struct Distribution {
  uint64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};
// Empty values give zeros.
Distribution DistributionOf(std::vector<double> values);

// The links of one kind, in one direction.
struct LinkLoad {
  std::string name;    // For example "workers, up".
  uint64_t bytes = 0;  // Payload over all links of the kind.
  double mean = 0;     // Mean share of the time in which a link sends.
  double max = 0;      // The same of the busiest link.
};

struct StepTimes {
  uint64_t step = 0;
  uint32_t workers = 0;  // Workers that took the step.
  double mean_s = 0;
  double max_s = 0;
  double ends_s = 0;  // When the last worker finished the step.
};

struct PlanEvent {
  uint64_t step = 0;  // The first step of the plan.
  std::string summary;
  std::string reason;
};

struct SimulationReport {
  double seconds = 0;  // Simulated time.
  uint64_t events = 0;
  Distribution step_s{};  // Covers all workers and all exchanges after the warm-up.
  Distribution wait_s{};  // The part of each in which the worker did not compute.
  std::vector<StepTimes> steps{};
  std::vector<LinkLoad> links{};
  double shard_busy_mean = 0;  // Share of the time in which a shard's processor works.
  double shard_busy_max = 0;
  double bundle_wait_s = 0;  // Mean time from the first contribution of a bundle to its last.
  uint64_t contributions = 0;
  uint64_t skipped_contributions = 0;
  uint64_t bundles_closed = 0;
  uint64_t quorum_bundles = 0;  // Closed without some rank.
  uint64_t late_contributions = 0;
  uint64_t outages = 0;
  double bytes_up = 0;  // A worker sends this per exchange.
  double bytes_down = 0;
  std::vector<PlanEvent> plans{};
  std::vector<std::string> notes{};  // What the result leaves out or assumes.
};

// Fails with INVALID_ARGUMENT if the spec contradicts itself, with RESOURCE_EXHAUSTED if the run
// would take more than events_max events, and with FAILED_PRECONDITION if the job stops making
// progress.
absl::StatusOr<SimulationReport> Simulate(const SimulationSpec& spec);

}  // namespace sluice::planning
