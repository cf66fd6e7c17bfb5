// SPDX-License-Identifier: Apache-2.0
#include "worker/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace sluice::worker {
namespace {

// Initial rate of one_cycle relative to its peak.
constexpr double kOneCycleStart = 1.0 / 25;

// Goes from `from` at progress 0 to `to` at progress 1.
double HalfCosine(double from, double to, double progress) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

// `done` of `total` steps precede the current step. The last step has progress 1.
double OneCycle(const job::LrScheduleSpec& schedule, double peak, uint64_t done, uint64_t total) {
  const double last = static_cast<double>(std::max<uint64_t>(total, 2) - 1);
  const double rise = schedule.warmup_fraction * last;
  const double at = static_cast<double>(done);
  if (at < rise) return HalfCosine(peak * kOneCycleStart, peak, at / rise);
  if (last <= rise) return peak;
  return HalfCosine(peak, schedule.final_lr, (at - rise) / (last - rise));
}

}  // namespace

double LearningRate(const job::LrScheduleSpec& schedule, double base, uint64_t step,
                    uint64_t total) {
  Check(step >= 1 && step <= total, "the step is within the job");
  uint64_t done = step - 1;
  const uint64_t warmup = schedule.warmup_steps;
  const uint64_t rest = total > warmup ? total - warmup : 1;
  if (done < warmup) {
    return base * static_cast<double>(step) / static_cast<double>(warmup + 1);
  }
  done -= warmup;
  if (schedule.name == "step") {
    const uint64_t drops = schedule.step_size > 0 ? done / schedule.step_size : 0;
    return base * std::pow(schedule.gamma, static_cast<double>(drops));
  }
  if (schedule.name == "cosine") {
    const double progress =
        rest > 1 ? static_cast<double>(done) / static_cast<double>(rest - 1) : 1.0;
    return HalfCosine(base, schedule.final_lr, progress);
  }
  if (schedule.name == "one_cycle") return OneCycle(schedule, base, done, rest);
  Check(schedule.name == "constant", "the job file names a known learning-rate schedule");
  return base;
}

}  // namespace sluice::worker
