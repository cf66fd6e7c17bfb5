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
  // Milliseconds by nearest rank, with `percent` in [0, 100]. 0 if there were no steps.
  double PercentileMs(double percent) const;

 private:
  std::vector<float> ms_;
  size_t next_ = 0;  // Position of the oldest step once kMaxSteps are kept.
};

}  // namespace sluice::worker
