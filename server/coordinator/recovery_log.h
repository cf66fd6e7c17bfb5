// SPDX-License-Identifier: Apache-2.0
// RecoveryLog: the losses that a job has recovered from since its coordinator started, and the
// announced consequence of the next one. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/job_status.h"

namespace sluice::server {

class RecoveryLog {
 public:
  using Effects = CoordinatorEffects;

  // Announces a rollback that an earlier coordinator caused. `term` begins after `step`.
  void Continue(std::string text, uint32_t term, uint64_t step, Effects* out);
  // Counts and announces a rollback.
  void RolledBack(std::string text, uint32_t term, uint64_t step, Effects* out);
  // Counts and announces a repair.
  void Repaired(absl::string_view text, Effects* out);
  // Announces the consequence of a loss if it differs from the last one that was announced.
  // `reason`: why it is a rollback. `checkpoint_step`: the step of the newest checkpoint.
  void Watch(RecoveryClass next, absl::string_view reason, uint64_t checkpoint_step, Effects* out);
  // From now on, Watch assumes that repairs were announced.
  void ExpectRepairs() { told_ = RecoveryClass::kReplay; }

  // Describes the last rollback. Empty if there was none.
  const std::string& last_rollback() const { return last_rollback_; }
  void AddTo(JobStatus* status) const;

 private:
  uint32_t rollbacks_ = 0;
  std::string last_rollback_;
  uint32_t repairs_ = 0;
  std::string last_repair_;
  RecoveryClass told_ = RecoveryClass::kNone;
};

// Names the beginning of a term that begins after this step.
std::string PlaceOf(uint64_t step);

}  // namespace sluice::server
