// SPDX-License-Identifier: Apache-2.0
// ResumeCheck: finds out from a job's checkpoint folder whether a run may begin or continue there,
// and at which step.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::cli {

struct RunStart {
  bool continues = false;
  uint32_t term = 0;             // The term that the run begins with.
  uint64_t checkpoint_step = 0;  // Step of the newest complete checkpoint; 0 if there is none.
};

// Only reads the folder. Fails with INVALID_ARGUMENT if the folder has a run and `resume` is false,
// or if `resume` is true and no run can continue; the message explains what to do. Fails with
// DATA_LOSS if the folder's records cannot be read. A job without checkpoints starts from the
// beginning.
absl::StatusOr<RunStart> FindRunStart(const job::JobSpec& spec, bool resume);

// Returns true if the folder's record says that the run has finished. Returns false for a job
// without checkpoints.
bool HasFinished(const job::JobSpec& spec);

// Returns the number of rollbacks since a run began with `first_term`, derived from the folder's
// current state. Returns 0 if the state does not show the number.
uint32_t RollbacksSince(const job::JobSpec& spec, uint32_t first_term);

}  // namespace sluice::cli
