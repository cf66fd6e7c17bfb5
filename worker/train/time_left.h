// SPDX-License-Identifier: Apache-2.0
// TimeLeft: estimates the rest of a run from the durations of its latest steps and breaks. A break
// is the cost of an epoch's end: rank 0 tests, all others wait for it in their next step, and the
// first batch of the next epoch must be prepared. Therefore every rank sees the break as a longer
// first step of an epoch. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace sluice::worker {

class TimeLeft {
 public:
  // Starts the run. Its first step, which includes warm-up, is not counted.
  void Start(absl::Time now);
  // A step ended at `now`. `begins_epoch` is true if it is an epoch's first.
  void EndStep(absl::Time now, bool begins_epoch);
  // Returns the estimate for `steps` steps and `breaks` breaks. Absent before two steps of this
  // run.
  std::optional<absl::Duration> For(uint64_t steps, uint64_t breaks) const;

 private:
  // Sums in which older steps have less weight.
  double seconds_ = 0;
  double steps_ = 0;
  std::optional<double> break_seconds_;  // Duration of the last break.
  bool warm_ = false;
  absl::Time started_;
  absl::Time last_;
};

}  // namespace sluice::worker
