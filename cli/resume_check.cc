// SPDX-License-Identifier: Apache-2.0
#include "cli/resume_check.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "job/job_spec.h"
#include "protocol/checkpoint/checkpoint_folder.h"

namespace sluice::cli {
namespace {

// This function does not look for damage. The coordinator verifies every part, which takes time.
uint64_t NewestComplete(const std::string& dir) {
  const absl::StatusOr<std::vector<uint64_t>> steps = protocol::ListCheckpoints(dir);
  if (!steps.ok()) return 0;
  for (auto step = steps->rbegin(); step != steps->rend(); ++step) {
    if (protocol::ReadManifest(dir, *step).ok()) return *step;
  }
  return 0;
}

std::string Newest(uint64_t step) {
  return step == 0 ? "with no complete checkpoint yet"
                   : absl::StrCat("with its newest checkpoint after step ", step);
}

}  // namespace

absl::StatusOr<RunStart> FindRunStart(const job::JobSpec& spec, bool resume) {
  if (!spec.checkpoint.enabled()) {
    if (!resume) return RunStart{};
    return absl::InvalidArgumentError(
        "--resume: the job has no checkpoints to continue from; its file needs a `checkpoint` "
        "section "
        "from the start (docs/checkpoints.md)");
  }
  const std::string& dir = spec.checkpoint.dir;
  const absl::StatusOr<protocol::RunRecord> record = protocol::ReadRunRecord(dir);
  if (absl::IsNotFound(record.status())) {
    if (!resume) return RunStart{};
    return absl::InvalidArgumentError(absl::StrCat(
        "--resume: no run was in ", dir, " (checkpoint.dir); leave --resume out to start one"));
  }
  if (!record.ok()) return record.status();
  if (record->finished) {
    return absl::InvalidArgumentError(absl::StrCat(dir, " holds a finished run of job ",
                                                   record->job_name,
                                                   "; give another checkpoint.dir, or remove it"));
  }
  const uint64_t step = NewestComplete(dir);
  if (!resume) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, " holds an unfinished run of job ", record->job_name, ", ", Newest(step),
                     "; continue it with --resume, give another checkpoint.dir, or remove it"));
  }
  if (record->job_name != spec.name) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: ", dir, " holds a run of job ", record->job_name,
                     ", but this is job ", spec.name, "; give this job its own checkpoint.dir"));
  }
  return RunStart{.continues = true, .term = record->term + 1, .checkpoint_step = step};
}

bool HasFinished(const job::JobSpec& spec) {
  if (!spec.checkpoint.enabled()) return false;
  const absl::StatusOr<protocol::RunRecord> record = protocol::ReadRunRecord(spec.checkpoint.dir);
  return record.ok() && record->finished;
}

uint32_t RollbacksSince(const job::JobSpec& spec, uint32_t first_term) {
  if (!spec.checkpoint.enabled()) return 0;
  const absl::StatusOr<protocol::RunRecord> record = protocol::ReadRunRecord(spec.checkpoint.dir);
  return record.ok() && record->term > first_term ? record->term - first_term : 0;
}

}  // namespace sluice::cli
