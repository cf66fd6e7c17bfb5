// Rounds: maps a job's steps to its session's steps. Each round ends with one exchange. Sessions,
// checkpoints and hashes of parameters count rounds; everything that users see counts steps. Only
// local_sgd has rounds of several steps. Pure.
#pragma once

#include <cstdint>

#include "job/job_spec.h"

namespace sluice::worker {

class Rounds {
 public:
  explicit Rounds(const job::JobSpec& spec) : steps_(job::StepsPerExchange(spec)) {}

  // Returns true if a round ends with step `step` of `total`. The last round may be shorter.
  bool EndsWith(uint64_t step, uint64_t total) const { return step % steps_ == 0 || step == total; }
  // Returns the number of finished rounds after `step`, which must end a round.
  uint64_t After(uint64_t step) const { return (step + steps_ - 1) / steps_; }

 private:
  const uint64_t steps_;
};

}  // namespace sluice::worker
