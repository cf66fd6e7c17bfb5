// SPDX-License-Identifier: Apache-2.0
// Rounds: maps a job's steps to its session's steps, which are its exchanges. Sessions, checkpoints
// and hashes of parameters count exchanges; everything that users see counts steps. Only local_sgd
// has fewer exchanges than steps. Pure.
//
// Without streaming (job::StreamsFragments), an exchange ends each round of `local_steps` steps,
// and the last round may be shorter. With streaming, exchange e of a job with P fragments begins
// after step floor(e * local_steps / P), and ends `fragment_delay` steps later. None begins after
// the last step: instead, one exchange of each fragment closes the job, so that all workers end
// with equal parameters.
#pragma once

#include <cstdint>

#include "job/job_spec.h"

namespace sluice::worker {

class Rounds {
 public:
  explicit Rounds(const job::JobSpec& spec);

  // Returns true if an exchange begins after step `step` of `total`.
  bool BeginsAfter(uint64_t step, uint64_t total) const;
  // Returns true if an exchange that began after this step or earlier ends after step `step` of
  // `total`.
  bool EndsAfter(uint64_t step, uint64_t total) const;
  // Returns true if exchanges follow the last step.
  bool closes() const { return streams_; }
  // Returns the number of exchanges of a job of `total` steps.
  uint64_t InAll(uint64_t total) const {
    return BegunBy(total, total) + (streams_ ? fragments_ : 0);
  }
  // Returns true if a checkpoint after step `step` of `total` may follow exchange `exchange`.
  bool CanFollow(uint64_t exchange, uint64_t step, uint64_t total) const;

 private:
  // Returns the number of exchanges that begin after the first `step` of `total` steps. The closing
  // exchanges do not count.
  uint64_t BegunBy(uint64_t step, uint64_t total) const;

  const bool streams_;
  const uint64_t steps_;
  const uint64_t fragments_;
  const uint64_t delay_;
};

}  // namespace sluice::worker
