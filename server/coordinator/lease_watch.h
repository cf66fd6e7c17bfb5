// SPDX-License-Identifier: Apache-2.0
// LeaseWatch: applies the time limits of a job to processes that do not join or that stay silent.
// Pure; not thread-safe.
#pragma once

#include "absl/time/time.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/job_run.h"

namespace sluice::server {

class LeaseWatch {
 public:
  using Effects = CoordinatorEffects;

  // `run` must outlive it.
  LeaseWatch(JobRun* run, absl::Time now) : run_(*run), last_tick_(now) {}

  absl::Time last_tick() const { return last_tick_; }
  // If more than a quarter of the lease has passed since the last tick, assumes that this process
  // was suspended, and shifts all timers by that gap.
  void Tick(absl::Time now, Effects* out);
  // Ends the job if it has waited too long for the processes of the term.
  void CheckJoins(absl::Time now, Effects* out);
  // For a job that cannot repair a loss now: a process whose lease has expired causes a rollback,
  // or ends a job without checkpoints.
  void CheckLeases(absl::Time now, Effects* out);
  // For a running job that repairs losses: it waits for a process whose lease has expired, while
  // the other processes can restore it. Otherwise it rolls back. If it has waited too long, it
  // ends.
  void AwaitLost(absl::Time now, Effects* out);

 private:
  bool AnyLostTooLong(absl::Time now) const;

  JobRun& run_;
  absl::Time last_tick_;
};

}  // namespace sluice::server
