// StepTimes: how long the latest steps took.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/time/time.h"

namespace sluice::worker {

// Keeps the last kMaxSteps; older ones are forgotten.
class StepTimes {
 public:
  static constexpr size_t kMaxSteps = 16384;

  void Add(absl::Duration took);
  // In milliseconds, nearest rank; `percent` in [0, 100]. 0 if there were no steps.
  double PercentileMs(double percent) const;

 private:
  std::vector<float> ms_;
  size_t next_ = 0;  // Where the oldest lies once kMaxSteps are kept.
};

}  // namespace sluice::worker
