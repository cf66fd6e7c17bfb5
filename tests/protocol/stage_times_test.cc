// SPDX-License-Identifier: Apache-2.0
#include "protocol/stage_times.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice::protocol {
namespace {

thread_local int64_t now_ns = 0;  // The CPU time that the threads of a test claim to have used.

int64_t ReadClock() { return now_ns; }

double Of(const StageTimes& times, Stage stage) {
  return times.Seconds()[static_cast<size_t>(stage)];
}

class StageTimesTest : public ::testing::Test {
 protected:
  StageTimesTest() { now_ns = 1'000; }
  static void Work(int64_t seconds) { now_ns += seconds * 1'000'000'000; }

  StageTimes times_{&ReadClock};
};

TEST_F(StageTimesTest, ASpanIsItsStages) {
  {
    StageSpan span(&times_, Stage::kReceive);
    Work(3);
    span.Next(Stage::kSum);
    Work(5);
  }
  Work(100);  // This time is outside any span.
  { const StageSpan again(&times_, Stage::kReceive), none(nullptr, Stage::kApply); }
  EXPECT_DOUBLE_EQ(Of(times_, Stage::kReceive), 3);
  EXPECT_DOUBLE_EQ(Of(times_, Stage::kSum), 5);
  EXPECT_DOUBLE_EQ(Of(times_, Stage::kApply), 0);
}

TEST_F(StageTimesTest, WhatIsInsideCountsOnce) {
  {
    StageSpan outer(&times_, Stage::kSum);
    Work(1);
    {
      StageSpan inner(&times_, Stage::kEncode);
      Work(10);
      {
        const StageSpan innermost(&times_, Stage::kSend);
        Work(100);
      }
      Work(20);
      inner.Next(Stage::kSend);
      Work(200);
    }
    Work(2);
    outer.Next(Stage::kReceive);
    Work(5);
  }
  EXPECT_DOUBLE_EQ(Of(times_, Stage::kSum), 3);
  EXPECT_DOUBLE_EQ(Of(times_, Stage::kEncode), 30);
  EXPECT_DOUBLE_EQ(Of(times_, Stage::kSend), 300);
  EXPECT_DOUBLE_EQ(Of(times_, Stage::kReceive), 5);
}

TEST_F(StageTimesTest, OtherThreadsAreNotInside) {
  const StageSpan outer(&times_, Stage::kSum);
  std::thread other([this] {
    const StageSpan span(&times_, Stage::kSum);
    Work(7);
  });
  other.join();
  EXPECT_DOUBLE_EQ(Of(times_, Stage::kSum), 7);
}

TEST_F(StageTimesTest, WhoeverMeasuresSomethingElseInsideTakesItsTimeAway) {
  StageTimes own(&ReadClock);
  {
    const StageSpan outer(&times_, Stage::kReceive);
    Work(1);
    const StageSpan inner(&own, Stage::kReceive);
    Work(4);
  }
  EXPECT_DOUBLE_EQ(Of(times_, Stage::kReceive), 1);
  EXPECT_DOUBLE_EQ(Of(own, Stage::kReceive), 4);
}

TEST_F(StageTimesTest, StagesHaveNames) {
  EXPECT_EQ(ToString(Stage::kReceive), "receive");
  EXPECT_EQ(ToString(static_cast<Stage>(kStages - 1)), "apply");
}

}  // namespace
}  // namespace sluice::protocol
