// SPDX-License-Identifier: Apache-2.0
// StepTimes: durations of the latest steps.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/time/time.h"

namespace sluice::worker {

// Keeps the last kMaxSteps and drops older ones.
class StepTimes {
 public:
  static constexpr size_t kMaxSteps = 16384;

  void Add(absl::Duration took);
  // Returns the nearest-rank percentile in milliseconds; 0 without steps. `percent` is 0 to 100.
  double PercentileMs(double percent) const;

 private:
  std::vector<float> ms_;
  size_t next_ = 0;  // Index of the oldest step once kMaxSteps are stored.
};

}  // namespace sluice::worker
