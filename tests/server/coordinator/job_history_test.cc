// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/job_history.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/job_status_samples.h"

namespace sluice::server {
namespace {

constexpr StepSplit kSplit = {.compute = 0.05, .encode = 0.01, .wait = 0.02, .transfer = 0.02};

void ExpectSplit(const StepSplit& split, const StepSplit& expected) {
  EXPECT_NEAR(split.compute, expected.compute, 1e-9);
  EXPECT_NEAR(split.encode, expected.encode, 1e-9);
  EXPECT_NEAR(split.wait, expected.wait, 1e-9);
  EXPECT_NEAR(split.transfer, expected.transfer, 1e-9);
}

// Advances all workers by ten steps per second.
void GoOn(double begin, double end, JobStatus* status, JobHistory* history) {
  for (double second = begin; second < end; ++second) {
    for (MemberStatus& member : status->members) Step(10, kSplit, &member);
    status->uptime = absl::Seconds(second);
    history->Add(*status, SecondOf(second));
  }
}

TEST(JobHistory, TellsRatesRatiosAndWhatAStepIsMadeOf) {
  JobStatus status = RunningJob(2);
  status.members[0].progress.loss = 1;
  status.members[1].progress.loss = 3;
  status.members[1].progress.validation_metric = 0.25;
  JobHistory history;
  GoOn(0, 30, &status, &history);
  const std::vector<HistoryPoint> points = history.Points();
  ASSERT_EQ(points.size(), 30u);
  EXPECT_FALSE(points[0].split.has_value());
  const HistoryPoint& last = points.back();
  EXPECT_EQ(last.seconds, 29);
  EXPECT_EQ(last.step, 300u);
  EXPECT_EQ(last.loss, 2);
  EXPECT_EQ(last.loss_min, 1);
  EXPECT_EQ(last.loss_max, 3);
  EXPECT_EQ(last.validation_metric, 0.25);
  ExpectSplit(*last.split, kSplit);
  EXPECT_NEAR(last.bytes_up_per_second, 2 * 10 * 100, 1e-9);
  EXPECT_NEAR(last.bytes_down_per_second, 2 * 10 * 50, 1e-9);
  EXPECT_NEAR(*last.ratio_up, 40, 1e-9);
  EXPECT_NEAR(*last.ratio_down, 80, 1e-9);
  const std::optional<MemberPace> pace = history.Pace(1);
  ASSERT_TRUE(pace.has_value());
  ExpectSplit(pace->split, kSplit);
  EXPECT_NEAR(pace->bytes_up_per_step, 100, 1e-9);
  EXPECT_NEAR(pace->bytes_down_per_step, 50, 1e-9);
  EXPECT_FALSE(history.Pace(2).has_value());
}

TEST(JobHistory, IsBoundedAndKeepsItsRatesWhenPointsAreDropped) {
  JobStatus status = RunningJob(1);
  JobHistory history;
  GoOn(0, 5000, &status, &history);
  const std::vector<HistoryPoint> points = history.Points();
  EXPECT_LT(points.size(), JobHistory::kPointsMax);
  EXPECT_GE(points.size(), JobHistory::kPointsMax / 2);
  EXPECT_LT(points.front().seconds, 32);
  EXPECT_GT(points.back().seconds, 4980);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_GT(points[i].seconds, points[i - 1].seconds);
    ExpectSplit(*points[i].split, kSplit);
    EXPECT_NEAR(points[i].bytes_up_per_second, 1000, 1e-6);
  }
}

TEST(JobHistory, IsAskedToOftenWithoutHarm) {
  JobHistory history;
  for (int i = 0; i < 100; ++i) history.Add(RunningJob(1), SecondOf(0.01 * i));
  EXPECT_EQ(history.Points().size(), 1u);
}

TEST(JobHistory, AStandstillShowsInBytesAndSteps) {
  JobStatus status = RunningJob(1);
  JobHistory history;
  EXPECT_FALSE(history.since_step().has_value());
  GoOn(0, 20, &status, &history);
  EXPECT_EQ(history.since_step(), absl::ZeroDuration());
  for (double second = 20; second < 60; ++second) history.Add(status, SecondOf(second));
  EXPECT_EQ(history.since_step(), absl::Seconds(40));
  const HistoryPoint last = history.Points().back();
  EXPECT_EQ(last.bytes_up_per_second, 0);
  ExpectSplit(*last.split, kSplit);  // The split still comes from the last steps.
}

TEST(JobHistory, SlowStepsAreSeenToo) {
  JobStatus status = RunningJob(1);
  JobHistory history;
  for (double second = 0; second < 100; ++second) {
    if (static_cast<int>(second) % 25 == 0) Step(1, {.compute = 20, .wait = 5}, &status.members[0]);
    history.Add(status, SecondOf(second));
  }
  EXPECT_NEAR(history.Points().back().split->compute, 20, 1e-9);
  EXPECT_NEAR(history.Pace(0)->split.wait, 5, 1e-9);
}

TEST(JobHistory, AProcessThatBeganAnewLeavesAGapAndNoNonsense) {
  JobStatus status = RunningJob(1);
  JobHistory history;
  GoOn(0, 20, &status, &history);
  const uint64_t step = status.members[0].progress.step;
  status.members[0].progress = {.step = step};
  status.members[0].timings = {};
  status.members[0].waited_seconds = 0;
  history.Add(status, SecondOf(20));
  EXPECT_FALSE(history.Pace(0).has_value());
  EXPECT_FALSE(history.Points().back().split.has_value());
  GoOn(21, 25, &status, &history);
  ExpectSplit(*history.Points().back().split, kSplit);
  ExpectSplit(history.Pace(0)->split, kSplit);
  for (const HistoryPoint& point : history.Points()) {
    EXPECT_GE(point.bytes_up_per_second, 0);
    EXPECT_LT(point.bytes_up_per_second, 1e4);
  }
}

TEST(JobHistory, ShardsThatSayMoreThanWorkersWaitedAreCut) {
  JobStatus status = RunningJob(1);
  JobHistory history;
  for (double second = 0; second < 5; ++second) {
    Step(10, {.compute = 0.05, .wait = 0.01, .transfer = 0.01}, &status.members[0]);
    status.members[0].waited_seconds += 100;
    history.Add(status, SecondOf(second));
  }
  const StepSplit split = history.Pace(0)->split;
  EXPECT_NEAR(split.wait, 0.02, 1e-9);
  EXPECT_NEAR(split.transfer, 0, 1e-9);
}

}  // namespace
}  // namespace sluice::server
