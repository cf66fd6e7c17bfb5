// SPDX-License-Identifier: Apache-2.0
// CheckpointReports: decides about the checkpoint in progress when a process reports a part of it,
// and when a time limit is over: the checkpoint becomes complete, or the coordinator abandons it.
// If a server cannot read a part of the checkpoint to restore, the job rolls back. Pure; not
// thread-safe.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/job_run.h"
#include "server/coordinator/part_examinations.h"

namespace sluice::server {

class CheckpointReports {
 public:
  using Effects = CoordinatorEffects;

  // `run` must outlive it.
  explicit CheckpointReports(JobRun* run) : run_(*run), examinations_(run) {}

  // As the methods of Coordinator with these names.
  absl::Status WorkerPart(const protocol::Sender& sender, const protocol::CheckpointPart& part,
                          absl::Time now, Effects* out);
  void ShardPart(ControlStreamId stream, const protocol::CheckpointPart& part, absl::Time now,
                 Effects* out);
  void PartExamined(ControlStreamId stream, const protocol::CheckpointPart& part, absl::Time now,
                    Effects* out);
  void ShardNamedCheckpoint(ControlStreamId stream, uint64_t step);
  // Records the outcome of WriteCheckpoint for the checkpoint in progress. Handle the consequences
  // of a complete checkpoint next, then call TakeEarlyParts.
  void Written(const absl::Status& status, absl::Time now, Effects* out);
  // Handles the parts of the next checkpoint that arrived before the last one was written.
  void TakeEarlyParts(absl::Time now, Effects* out);

  // Abandons the checkpoint in progress if a part is overdue.
  void AbandonOverdue(absl::Time now, Effects* out);
  // Abandons the checkpoint in progress if an earlier coordinator requested it and its parts do not
  // arrive.
  void AbandonForgotten(absl::Time now, Effects* out);

 private:
  // Returns true if processes must restore the checkpoint after this step.
  bool IsToRestore(uint64_t step) const;
  bool IsOfRack(const protocol::Sender& sender, const protocol::CheckpointPart& part) const;
  void Discard(uint64_t step, absl::string_view why, absl::Time now, Effects* out);
  void Record(const protocol::CheckpointPart& part, absl::string_view from, absl::Time now,
              Effects* out);
  // Records the part of a shard, and the workers' parts that waited for it.
  void RecordOfShard(const protocol::CheckpointPart& part, absl::string_view from, absl::Time now,
                     Effects* out);
  void RecordHeld(absl::Time now, Effects* out);
  void Abandon(absl::string_view why, absl::Time now, Effects* out);
  void AskForNext(Effects* out);

  JobRun& run_;
  PartExaminations examinations_;
};

}  // namespace sluice::server
