// SPDX-License-Identifier: Apache-2.0
// ElasticMembers: removes and adds workers while an elastic job runs. docs/protocol.md, "Elastic
// membership", has the rules. Pure; not thread-safe.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/job_run.h"
#include "server/coordinator/roster.h"

namespace sluice::server {

class ElasticMembers {
 public:
  using Effects = CoordinatorEffects;

  // `run` must outlive it.
  explicit ElasticMembers(JobRun* run) : run_(*run) {}

  // Removes members whose lease has expired, if enough others are left to continue.
  void EvictLost(absl::Time now, Effects* out);
  // Records that a member left before the end. If enough other members are left, they continue
  // without it. Otherwise the job waits as it does for a lost member, but only a newcomer can take
  // the rank.
  void GiveUp(uint32_t rank, absl::string_view why, absl::Time now, Effects* out);
  // Admits newcomers to ranks without a holder or with a silent holder. A newcomer restores the
  // newest checkpoint and replays the later steps from their results. It becomes a member at the
  // first step that it can still contribute to. Without a usable checkpoint, the job makes one or
  // rolls back.
  void AdmitLearners(absl::Time now, Effects* out);

 private:
  void Remove(const Roster::Ranks& ranks, absl::string_view how, absl::Time now, Effects* out);
  void AskForCheckpoint(absl::Time now, Effects* out);
  bool CanTakeLearners() const;
  void AnnounceMembers(Effects* out);

  JobRun& run_;
};

}  // namespace sluice::server
