// SPDX-License-Identifier: Apache-2.0
// DivergenceCheck: compares the parameters of the ranks after the same step. If they differ, the
// job rolls back where a rollback removes the difference, and fails otherwise. Pure; not
// thread-safe.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "protocol/exchange.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/job_run.h"
#include "server/coordinator/parameter_audit.h"

namespace sluice::server {

class DivergenceCheck {
 public:
  using Effects = CoordinatorEffects;

  // `run` must outlive it.
  explicit DivergenceCheck(JobRun* run) : run_(*run) {}

  // Compares the hash in the heartbeat, if there is one. The sender is a member of the term.
  void Compare(const protocol::WorkerHeartbeat& heartbeat, absl::Time now, Effects* out);
  // Forgets the steps that a complete checkpoint contains and that all members have reported.
  void CheckpointComplete(uint64_t step) {
    audit_.ForgetCompleteUpTo(step, run_.roster().Present());
  }

 private:
  bool ComesOfARepair(const protocol::Sender& first, const protocol::Sender& sender,
                      uint64_t step) const;

  JobRun& run_;
  ParameterAudit audit_;
  uint32_t term_ = 0;  // The term of the hashes in the audit.
};

}  // namespace sluice::server
