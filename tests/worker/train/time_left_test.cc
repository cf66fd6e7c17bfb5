// SPDX-License-Identifier: Apache-2.0
#include "worker/train/time_left.h"

#include <gtest/gtest.h>

#include <functional>

namespace sluice::worker {
namespace {

struct Timeline {
  uint64_t epochs = 10;
  uint64_t steps_per_epoch = 100;
  double test_seconds = 0;
  std::function<double(uint64_t step)> step_seconds;  // `step` counts from 0.
  double start_up_seconds = 0;                        // Additional time of the first step.

  uint64_t steps() const { return epochs * steps_per_epoch; }
  double Seconds() const {
    double all = start_up_seconds + static_cast<double>(epochs) * test_seconds;
    for (uint64_t step = 0; step < steps(); ++step) all += step_seconds(step);
    return all;
  }
};

// Returns the largest relative error of the estimates made between the fractions `from` and `to` of
// the run's time.
double WorstError(const Timeline& run, double from, double to = 1) {
  const double all = run.Seconds();
  TimeLeft left;
  double now = 0;
  double worst = 0;
  const auto at = [&] { return absl::UnixEpoch() + absl::Seconds(now); };
  left.Start(at());
  for (uint64_t step = 0; step < run.steps(); ++step) {
    now += run.step_seconds(step) + (step == 0 ? run.start_up_seconds : 0);
    left.EndStep(at(), step % run.steps_per_epoch == 0);
    const uint64_t done = step + 1;
    const uint64_t breaks = run.epochs - (done - 1) / run.steps_per_epoch;
    const std::optional<absl::Duration> estimate = left.For(run.steps() - done, breaks);
    EXPECT_TRUE(step > 0 || !estimate.has_value());
    if (now >= all * from && now <= all * to && all - now > 1e-9) {
      const double error = absl::ToDoubleSeconds(*estimate) - (all - now);
      worst = std::max(worst, std::abs(error) / (all - now));
    }
    if (done % run.steps_per_epoch == 0) now += run.test_seconds;
  }
  return worst;
}

TEST(TimeLeftTest, IsExactAtAConstantSpeed) {
  Timeline run{.step_seconds = [](uint64_t) { return 0.02; }};
  EXPECT_LT(WorstError(run, 0.01), 1e-6);
  run.start_up_seconds = 30;
  EXPECT_LT(WorstError(run, 0.7), 1e-6) << "the first step does not count";
}

TEST(TimeLeftTest, LearnsOfHalfTheSpeed) {
  for (const double scale : {0.002, 0.2, 20.0}) {
    const Timeline run{
        .step_seconds = [&](uint64_t step) { return step < 180 ? scale : 2 * scale; }};
    EXPECT_LT(WorstError(run, 0.2), 0.1) << scale;
    const Timeline late{
        .step_seconds = [&](uint64_t step) { return step < 600 ? scale : 2 * scale; }};
    EXPECT_LT(WorstError(late, 0.6), 0.1) << scale;
  }
}

TEST(TimeLeftTest, CountsTheTestsThatAreToCome) {
  Timeline run{.test_seconds = 0.2, .step_seconds = [](uint64_t) { return 0.018; }};
  EXPECT_NEAR(10 * run.test_seconds / run.Seconds(), 0.1, 0.001);
  EXPECT_LT(WorstError(run, 0.2), 0.001);
  EXPECT_LT(WorstError(run, 0.01, 0.1), 0.12)
      << "the duration of a test is unknown before the first one";
}

// Durations vary irregularly between 0.5 and 1.5 times their mean. The estimate must stay accurate.
TEST(TimeLeftTest, IsNotThrownByUnevenSteps) {
  const Timeline run{.test_seconds = 0.2, .step_seconds = [](uint64_t step) {
                       return 0.018 * (0.5 + static_cast<double>(step * 7919 % 101) / 100);
                     }};
  EXPECT_LT(WorstError(run, 0.2, 0.9), 0.1);
}

TEST(TimeLeftTest, NothingLeftIsNoTime) {
  TimeLeft left;
  const absl::Time start = absl::UnixEpoch();
  left.Start(start);
  EXPECT_FALSE(left.For(3, 0).has_value());
  left.EndStep(start, true);
  left.EndStep(start, false);  // The clock does not advance.
  EXPECT_EQ(left.For(3, 1), absl::ZeroDuration());
  left.EndStep(start + absl::Seconds(2), false);
  EXPECT_EQ(left.For(0, 0), absl::ZeroDuration());
  EXPECT_GT(left.For(1, 0), absl::ZeroDuration());
}

}  // namespace
}  // namespace sluice::worker
