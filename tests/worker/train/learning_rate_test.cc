// SPDX-License-Identifier: Apache-2.0
#include "worker/train/learning_rate.h"

#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

TEST(LearningRateTest, ConstantStays) {
  for (const uint64_t step : {1, 50, 100}) EXPECT_EQ(LearningRate({}, 0.1, step, 100), 0.1);
}

TEST(LearningRateTest, StepFallsAfterEachStepSize) {
  const job::LrScheduleSpec schedule{.name = "step", .step_size = 10, .gamma = 0.5};
  EXPECT_EQ(LearningRate(schedule, 0.8, 1, 100), 0.8);
  EXPECT_EQ(LearningRate(schedule, 0.8, 10, 100), 0.8);
  EXPECT_EQ(LearningRate(schedule, 0.8, 11, 100), 0.4);
  EXPECT_EQ(LearningRate(schedule, 0.8, 31, 100), 0.1);
}

TEST(LearningRateTest, CosineGoesFromBaseToFinal) {
  const job::LrScheduleSpec schedule{.name = "cosine", .final_lr = 0.2};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1.0, 1, 101), 1.0);
  EXPECT_NEAR(LearningRate(schedule, 1.0, 51, 101), 0.6, 1e-12);
  EXPECT_NEAR(LearningRate(schedule, 1.0, 26, 101), 0.2 + 0.4 * (1 + 0.7071067811865476), 1e-12);
  EXPECT_NEAR(LearningRate(schedule, 1.0, 101, 101), 0.2, 1e-12);
}

TEST(LearningRateTest, OneCycleRisesThenFalls) {
  const job::LrScheduleSpec schedule{.name = "one_cycle", .final_lr = 0, .warmup_fraction = 0.25};
  EXPECT_NEAR(LearningRate(schedule, 0.5, 1, 101), 0.02, 1e-12);
  EXPECT_NEAR(LearningRate(schedule, 0.5, 26, 101), 0.5, 1e-12);
  EXPECT_NEAR(LearningRate(schedule, 0.5, 101, 101), 0.0, 1e-12);
  for (uint64_t step = 2; step <= 101; ++step) {
    const double change =
        LearningRate(schedule, 0.5, step, 101) - LearningRate(schedule, 0.5, step - 1, 101);
    EXPECT_EQ(change > 0, step <= 26) << step;
  }
}

TEST(LearningRateTest, OneCycleMayRiseToTheEndOrFallFromTheStart) {
  const job::LrScheduleSpec rising{.name = "one_cycle", .warmup_fraction = 1};
  EXPECT_NEAR(LearningRate(rising, 1.0, 100, 100), 1.0, 1e-12);
  const job::LrScheduleSpec falling{.name = "one_cycle", .warmup_fraction = 0};
  EXPECT_NEAR(LearningRate(falling, 1.0, 1, 100), 1.0, 1e-12);
}

TEST(LearningRateTest, WarmUpComesBeforeTheSchedule) {
  const job::LrScheduleSpec schedule{.name = "cosine", .warmup_steps = 4, .final_lr = 0};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1.0, 1, 104), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1.0, 4, 104), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1.0, 5, 104), 1.0);
  EXPECT_NEAR(LearningRate(schedule, 1.0, 104, 104), 0.0, 1e-12);
}

TEST(LearningRateTest, OddlyShortJobsGiveFiniteRates) {
  for (const char* name : {"constant", "step", "cosine", "one_cycle"}) {
    for (const uint64_t warmup : {0, 1, 5}) {
      const job::LrScheduleSpec schedule{.name = name, .warmup_steps = warmup, .step_size = 1};
      for (const uint64_t total : {1, 2, 3}) {
        for (uint64_t step = 1; step <= total; ++step) {
          const double rate = LearningRate(schedule, 1.0, step, total);
          EXPECT_TRUE(rate >= 0 && rate <= 1) << name << " " << warmup << " " << total;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::worker
