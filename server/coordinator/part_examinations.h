// SPDX-License-Identifier: Apache-2.0
// PartExaminations: lets a server read a part of a checkpoint that a worker reports as unreadable,
// so that no worker's word alone discards a checkpoint. One examination runs at a time. Pure; not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/snapshot.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/job_run.h"

namespace sluice::server {

class PartExaminations {
 public:
  using Effects = CoordinatorEffects;

  // For this long after an examination, a further report of the intact part is refused without
  // another examination.
  static constexpr absl::Duration kVerdictHolds = absl::Minutes(1);

  // `run` must outlive it.
  explicit PartExaminations(JobRun* run) : run_(*run) {}

  // Returns what the manifest of the checkpoint lacks, so that workers cannot restore it; empty if
  // it is complete. A checkpoint with a gap needs no examination.
  std::string Gap(uint64_t step) const;
  // Returns the answer to a worker's report about the checkpoint that it must restore: UNAVAILABLE
  // while the part is being examined (the worker repeats its report), FAILED_PRECONDITION if the
  // part is intact, and INVALID_ARGUMENT if the checkpoint has no such part. Repeats the command to
  // a shard that has attached again since. A shard that does not attach delays the verdict, and its
  // own lease ends the wait.
  absl::Status Reported(const protocol::CheckpointPart& part, absl::string_view from,
                        absl::Time now, Effects* out);
  // Records a shard's answer. Returns why the checkpoint cannot be used; empty if the answer is
  // that the part is intact, or if it does not belong to the examination under way.
  std::string Examined(ControlStreamId stream, const protocol::CheckpointPart& part, absl::Time now,
                       Effects* out);

 private:
  struct Examination {
    protocol::CheckpointPart part;
    std::string from;            // Who reported the part.
    std::string trouble;         // What the report says.
    ControlStreamId stream = 0;  // The stream that got the command; 0 if none did.
  };

  std::optional<protocol::CheckpointPart> Find(const protocol::CheckpointPart& reported) const;
  void ForgetOthers(const protocol::CheckpointPart& part);
  void Command(Effects* out);
  uint32_t ExaminerOf(const protocol::CheckpointPart& part) const;

  JobRun& run_;
  uint32_t term_ = 0;  // The examination and the verdicts are about the checkpoint of this term and
  uint64_t step_ = 0;  // step. They remain valid if the job rolls back to it.
  std::optional<Examination> under_way_;
  std::map<std::string, absl::Time> intact_;  // When each part was found intact; by name.
};

}  // namespace sluice::server
