// SPDX-License-Identifier: Apache-2.0
#include "worker/train/time_left.h"

#include <algorithm>
#include <cmath>

namespace sluice::worker {
namespace {

// A step's weight halves after a tenth of the run so far, so that short and long runs adapt to a
// new speed after the same share of the run. The half-life is at most a few minutes, but at least a
// few steps.
constexpr double kHalfLifeShare = 0.1;
constexpr double kHalfLifeSecondsMax = 300;
constexpr double kHalfLifeStepsMin = 8;

}  // namespace

void TimeLeft::Start(absl::Time now) { started_ = last_ = now; }

void TimeLeft::EndStep(absl::Time now, bool begins_epoch) {
  double seconds = std::max(0.0, absl::ToDoubleSeconds(now - last_));
  last_ = now;
  if (!warm_) {
    warm_ = true;
    return;
  }
  if (begins_epoch && steps_ > 0) {
    const double step = seconds_ / steps_;
    break_seconds_ = std::max(0.0, seconds - step);
    seconds = std::min(seconds, step);
  }
  const double elapsed = absl::ToDoubleSeconds(now - started_);
  const double half_life = std::max(std::min(elapsed * kHalfLifeShare, kHalfLifeSecondsMax),
                                    seconds * kHalfLifeStepsMin);
  const double kept = half_life > 0 ? std::exp2(-seconds / half_life) : 1;
  seconds_ = seconds_ * kept + seconds;
  steps_ = steps_ * kept + 1;
}

std::optional<absl::Duration> TimeLeft::For(uint64_t steps, uint64_t breaks) const {
  if (steps_ == 0) return std::nullopt;
  return absl::Seconds(static_cast<double>(steps) * seconds_ / steps_ +
                       static_cast<double>(breaks) * break_seconds_.value_or(0));
}

}  // namespace sluice::worker
