// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step_times.h"

#include <algorithm>
#include <cmath>

namespace sluice::worker {

void StepTimes::Add(absl::Duration took) {
  const auto ms = static_cast<float>(absl::ToDoubleMilliseconds(took));
  if (ms_.size() < kMaxSteps) {
    ms_.push_back(ms);
    return;
  }
  ms_[next_] = ms;
  next_ = (next_ + 1) % kMaxSteps;
}

double StepTimes::PercentileMs(double percent) const {
  if (ms_.empty()) return 0;
  const double rank = std::ceil(percent / 100 * static_cast<double>(ms_.size()));
  const size_t at = std::clamp<size_t>(static_cast<size_t>(rank), 1, ms_.size()) - 1;
  std::vector<float> sorted = ms_;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at), sorted.end());
  return sorted[at];
}

}  // namespace sluice::worker
