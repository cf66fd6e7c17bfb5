// SPDX-License-Identifier: Apache-2.0
#include "server/shard/rank_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(RankWaits, TellsWhoWaitsAndWhoIsWaitedFor) {
  RankWaits waits(2);
  for (uint64_t step = 1; step <= 3; ++step) {
    const auto begin = static_cast<double>(10 * step);
    waits.Arrived(0, step, 0, At(begin));
    waits.Arrived(0, step, 1, At(begin + 1));
    waits.Arrived(1, step, 0, At(begin + 3));
    waits.Answered(0, step, 0, At(begin + 3));
    waits.Answered(1, step, 0, At(begin + 3));
    waits.Arrived(1, step, 1, At(begin + 5));
    waits.Answered(0, step, 1, At(begin + 5));
    waits.Answered(1, step, 1, At(begin + 5));
  }
  // Two finished steps count. In each of them, rank 0 waits from its last arrival (second 1) to the
  // answer that ends the step (second 5). The answer before that leaves a bundle open.
  EXPECT_THAT(waits.seconds(), ElementsAre(8, 0));
}

TEST(RankWaits, AnAnswerInTheMiddleOfAStepIsNotItsEnd) {
  RankWaits waits(1);
  waits.Arrived(0, 1, 0, At(0));
  // The worker is still computing when this answer arrives, so the worker does not wait.
  waits.Answered(0, 1, 0, At(5));
  waits.Arrived(0, 1, 1, At(6));
  waits.Answered(0, 1, 1, At(8));
  waits.Arrived(0, 2, 0, At(9));
  EXPECT_THAT(waits.seconds(), ElementsAre(2));
}

TEST(RankWaits, WhatIsSentAgainOrRefusedOrOfNobodyChangesNothing) {
  RankWaits waits(1);
  waits.Arrived(0, 0, 0, At(0));  // Step 0 exchanges the parameters.
  waits.Answered(0, 0, 0, At(9));
  waits.Arrived(0, 1, 0, At(10));
  waits.Refused(0, 1, 0);  // The shard was busy.
  waits.Arrived(0, 1, 0, At(11));
  waits.Arrived(0, 1, 0, At(12));  // This arrival is a repeat.
  waits.Answered(0, 1, 0, At(13));
  waits.Answered(0, 1, 0, At(20));
  waits.Arrived(0, 2, 0, At(21));
  waits.Arrived(0, 1, 0, At(22));
  waits.Arrived(7, 1, 0, At(22));
  waits.Answered(7, 1, 0, At(22));
  waits.Refused(7, 1, 0);
  EXPECT_THAT(waits.seconds(), ElementsAre(2));
}

}  // namespace
}  // namespace sluice::server
