// SPDX-License-Identifier: Apache-2.0
// Goodput: the share of a cluster's computing that reaches the model while workers fail, for three
// ways to train. It is a lighter model than Simulate: computing has one speed, and an exchange
// takes a given time. Bundles close by the shards' real rule (server/shard/closing_rule.h). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planning/simulation/cluster.h"

namespace sluice::planning {

// All times are in seconds.
struct GoodputSpec {
  uint32_t workers = 10'000;
  double step_s = 1;  // A step, with its exchange.
  double duration_s = 86'400;
  double lease_s = 10;  // Until the coordinator takes the rank of a silent worker.
  // Plain data parallel: until all workers have started again and read the checkpoint, and the time
  // between two checkpoints.
  double restart_s = 300;
  double checkpoint_s = 1800;
  // Streaming local steps with a quorum.
  uint64_t local_steps = 100;
  uint64_t delay_steps = 50;      // Steps that a worker takes before it needs the result.
  double quorum = 0.9;            // Share of the workers.
  double grace_s = 5;             // straggler_timeout.
  std::vector<Outage> outages{};  // By time of begin.
};

// Useful computing of all workers, divided by all that they could do if none failed.
struct Goodput {
  double plain = 0;    // A failure stops all workers, which return to the last checkpoint.
  double elastic = 0;  // Each step waits for a lost worker until its lease ends.
  double quorate = 0;  // Elastic, with streaming local steps that close with a quorum.
};

// Fails with INVALID_ARGUMENT if a value is out of its range.
absl::StatusOr<Goodput> SimulateGoodput(const GoodputSpec& spec);

}  // namespace sluice::planning
