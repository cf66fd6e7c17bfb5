// TimeLeft: how long a run will go on, judged by how long its latest steps and breaks took. A break
// is what an epoch's end costs: rank 0 tests, all others wait for it in their next step, and the
// first batch of the next epoch has to be made. So every rank sees it alike, as a first step of an
// epoch that takes longer than others. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace sluice::worker {

class TimeLeft {
 public:
  // The run begins. Its first step, which warms things up, is not counted.
  void Start(absl::Time now);
  // A step ended at `now`; `begins_epoch`: it is an epoch's first.
  void EndStep(absl::Time now, bool begins_epoch);
  // For so many steps and breaks. None before two steps of this run.
  std::optional<absl::Duration> For(uint64_t steps, uint64_t breaks) const;

 private:
  // Sums in which older steps count less.
  double seconds_ = 0;
  double steps_ = 0;
  std::optional<double> break_seconds_;  // Of the last.
  bool warm_ = false;
  absl::Time started_;
  absl::Time last_;
};

}  // namespace sluice::worker
