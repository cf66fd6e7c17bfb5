// What the folder of a job's checkpoints says about starting a run there: whether it may begin or
// go on, and from where.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::cli {

struct RunStart {
  bool continues = false;
  uint32_t term = 0;             // That the run begins with.
  uint64_t checkpoint_step = 0;  // Of the newest complete checkpoint; 0: none.
};

// Reads only. INVALID_ARGUMENT, with what to do instead: there is a run and `resume` is not given,
// or none that could go on and it is; DATA_LOSS: what is there cannot be read. A job without
// checkpoints starts anew.
absl::StatusOr<RunStart> FindRunStart(const job::JobSpec& spec, bool resume);

// By what the folder says now; false for a job without checkpoints.
bool HasFinished(const job::JobSpec& spec);

// Rollbacks since a run began with `first_term`, by what the folder says now; 0 if it says nothing.
uint32_t RollbacksSince(const job::JobSpec& spec, uint32_t first_term);

}  // namespace sluice::cli
