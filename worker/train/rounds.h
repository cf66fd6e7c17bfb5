// Rounds: what a job's steps are to its session. Each round ends with one exchange; sessions,
// checkpoints and hashes of parameters count rounds, and all that people see counts steps. Only in
// local_sgd does a round have several. Pure.
#pragma once

#include <cstdint>

#include "job/job_spec.h"

namespace sluice::worker {

class Rounds {
 public:
  explicit Rounds(const job::JobSpec& spec) : steps_(job::StepsPerExchange(spec)) {}

  // Whether a round ends with step `step` of `total`, as the last does, however short.
  bool EndsWith(uint64_t step, uint64_t total) const { return step % steps_ == 0 || step == total; }
  // How many have ended after `step` steps, the last of which ends one.
  uint64_t After(uint64_t step) const { return (step + steps_ - 1) / steps_; }

 private:
  const uint64_t steps_;
};

}  // namespace sluice::worker
