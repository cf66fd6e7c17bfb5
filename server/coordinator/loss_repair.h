// SPDX-License-Identifier: Apache-2.0
// LossRepair: restores a lost process within the current term from the data that other processes
// keep since the newest checkpoint. A restarted shard replays the later steps with the workers'
// contributions; the newcomer for a lost worker replays them with the shards' results. If a repair
// is impossible, the job rolls back. Pure; not thread-safe.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/job_run.h"
#include "server/coordinator/roster.h"
#include "server/coordinator/shard_fleet.h"

namespace sluice::server {

class LossRepair {
 public:
  using Effects = CoordinatorEffects;

  // `run` must outlive it.
  explicit LossRepair(JobRun* run) : run_(*run) {}

  // Shards.
  // Records that a shard attached after the term had been announced. `is_new`: as returned by
  // ShardFleet::Attach.
  void ShardAttached(const ShardSeat& seat, bool is_new, absl::Time now);
  // Starts the replays of all shards that need one. Rolls back if one of them is impossible.
  void StartReplays(absl::Time now, Effects* out);
  // Ends the replay of shards that have caught up. Shard 0 names no checkpoint before that.
  void EndReplays(absl::Time now, Effects* out);

  // Workers.
  // Gives ranks of lost workers to waiting newcomers, or rolls back if that is impossible.
  void ReplaceWorkers(absl::Time now, Effects* out);

  // Announces it if the consequence of a loss has changed.
  void WatchOutlook(Effects* out);

 private:
  std::string WhyNotReplaced(const Roster::Ranks& ranks, absl::Time now) const;
  void Replace(const Roster::Ranks& ranks, absl::Time now, Effects* out);

  JobRun& run_;
};

}  // namespace sluice::server
