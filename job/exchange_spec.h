// SPDX-License-Identifier: Apache-2.0
// ExchangeSpec, ParentPlans and LocalStepsSpec: how the workers and shards of a job exchange
// gradients. The options of shards, pipelines, sessions and the coordinator hold the job's
// ExchangeSpec.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "job/control_spec.h"
#include "job/enums.h"
#include "job/guard_spec.h"
#include "job/merge_spec.h"
#include "job/modes.h"
#include "protocol/compression_spec.h"
#include "protocol/job_defaults.h"

namespace sluice::job {

struct ExchangeSpec {
  Mode mode = Mode::kSync;
  uint32_t staleness = 0;           // Only if staleness is bounded (job/modes.h). In steps.
  bool staleness_aware_lr = false;  // Only in asynchronous modes.
  Membership membership = Membership::kFixed;
  // Only in lockstep modes: an exchange may close without the stragglers after `quorum` workers
  // have contributed and `straggler_timeout` has passed. 0 disables this.
  uint32_t quorum = 0;
  absl::Duration straggler_timeout{};
  // Interval, in steps, at which buffers are averaged over all ranks.
  uint64_t buffer_sync_interval = protocol::defaults::kBufferSyncInterval;
  protocol::CompressionSpec compression{};
  ControlSpec control{};
  GuardSpec guard{};
  MergeSpec merge{};

  // Returns true if workers wait for each other's contributions. Otherwise every worker runs at its
  // own pace.
  bool in_lockstep() const { return InLockstep(mode); }
  // Returns true if shards compare or merge whole contributions, and not only sums of them.
  bool needs_contributions() const { return guard.on() || !merge.plain(); }
  // Returns true if workers may join and leave during the job.
  bool elastic() const { return membership == Membership::kElastic; }
  // Returns true if results list the members, because their records do not name all of them.
  bool lists_members() const { return elastic() && (!in_lockstep() || quorum > 0); }
};

// What the first compression plan of the servers' part of a job with relays depends on.
struct ParentPlans {
  protocol::CompressionSpec compression{};
  uint32_t relays = 0;
};

// Only in modes with local steps.
struct LocalStepsSpec {
  uint64_t steps = 1;  // Steps of each worker between two exchanges.
  OuterOptimizer outer_optimizer = OuterOptimizer::kNesterov;
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  // Steps between sending the change of parameters and adopting the result. Training goes on
  // meanwhile.
  uint64_t fragment_delay = 0;
  // Weight of a worker's own parameters when it adopts a result; the result has the rest.
  double merge_alpha = 0;
};

}  // namespace sluice::job
