// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step_times.h"

#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

TEST(StepTimesTest, PercentilesAreNearestRanks) {
  StepTimes times;
  EXPECT_EQ(times.PercentileMs(50), 0);
  for (int ms = 20; ms >= 1; --ms) times.Add(absl::Milliseconds(ms));
  EXPECT_EQ(times.PercentileMs(0), 1);
  EXPECT_EQ(times.PercentileMs(50), 10);
  EXPECT_EQ(times.PercentileMs(95), 19);
  EXPECT_EQ(times.PercentileMs(100), 20);
}

TEST(StepTimesTest, OldStepsAreForgotten) {
  StepTimes times;
  for (size_t i = 0; i < StepTimes::kMaxSteps; ++i) times.Add(absl::Seconds(1));
  for (size_t i = 0; i < StepTimes::kMaxSteps; ++i) times.Add(absl::Milliseconds(1));
  EXPECT_EQ(times.PercentileMs(100), 1);
}

}  // namespace
}  // namespace sluice::worker
