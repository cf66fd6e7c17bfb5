// SPDX-License-Identifier: Apache-2.0
#include "worker/train/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice::worker {
namespace {

using ::testing::ElementsAre;

job::JobSpec LocalJob(uint64_t steps) {
  job::JobSpec spec;
  spec.exchange.mode = job::Mode::kLocalSgd;
  spec.local.steps = steps;
  return spec;
}

std::vector<uint64_t> Begins(const Rounds& rounds, uint64_t total) {
  std::vector<uint64_t> steps;
  for (uint64_t step = 1; step <= total; ++step) {
    if (rounds.BeginsAfter(step, total)) steps.push_back(step);
  }
  return steps;
}

std::vector<uint64_t> Ends(const Rounds& rounds, uint64_t total) {
  std::vector<uint64_t> steps;
  for (uint64_t step = 1; step <= total; ++step) {
    if (rounds.EndsAfter(step, total)) steps.push_back(step);
  }
  return steps;
}

TEST(RoundsTest, LocalSgdHasSeveralStepsInEach) {
  const Rounds rounds(LocalJob(4));
  EXPECT_THAT(Begins(rounds, 10), ElementsAre(4, 8, 10));
  EXPECT_THAT(Ends(rounds, 10), ElementsAre(4, 8, 10));
  EXPECT_EQ(rounds.InAll(10), 3u);
  EXPECT_FALSE(rounds.closes());
  EXPECT_TRUE(rounds.CanFollow(2, 8, 10));
  EXPECT_TRUE(rounds.CanFollow(3, 10, 10));
  EXPECT_FALSE(rounds.CanFollow(2, 10, 10));
}

TEST(RoundsTest, ElsewhereARoundIsAStep) {
  job::JobSpec spec;
  spec.local.steps = 4;  // Only mode local_sgd uses this value.
  const Rounds rounds(spec);
  EXPECT_THAT(Begins(rounds, 5), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(Ends(rounds, 5), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(rounds.InAll(5), 5u);
}

// Three fragments do not divide seven steps. Each fragment must still be exchanged exactly once in
// seven steps.
TEST(RoundsTest, FragmentsTakeTurnsWithinARound) {
  job::JobSpec spec = LocalJob(7);
  spec.exchange.compression.layout.fragments = 3;
  spec.local.fragment_delay = 1;
  const Rounds rounds(spec);
  EXPECT_THAT(Begins(rounds, 20), ElementsAre(2, 4, 7, 9, 11, 14, 16, 18));
  EXPECT_THAT(Ends(rounds, 20), ElementsAre(3, 5, 8, 10, 12, 15, 17, 19));
  EXPECT_TRUE(rounds.closes());
  EXPECT_EQ(rounds.InAll(20), 11u) << "one exchange of each fragment closes the job";
  EXPECT_TRUE(rounds.CanFollow(3, 8, 20));
  EXPECT_FALSE(rounds.CanFollow(4, 8, 20));
  for (const uint64_t closing : {8, 9, 10, 11}) EXPECT_TRUE(rounds.CanFollow(closing, 20, 20));
  EXPECT_FALSE(rounds.CanFollow(12, 20, 20));
  EXPECT_FALSE(rounds.CanFollow(7, 20, 20));
}

TEST(RoundsTest, WhatIsInFlightAtTheEndIsAdoptedThere) {
  job::JobSpec spec = LocalJob(6);
  spec.exchange.compression.layout.fragments = 2;
  spec.local.fragment_delay = 2;
  const Rounds rounds(spec);
  EXPECT_THAT(Begins(rounds, 7), ElementsAre(3, 6));
  EXPECT_THAT(Ends(rounds, 7), ElementsAre(5, 7));
  EXPECT_THAT(Begins(rounds, 6), ElementsAre(3)) << "no exchange begins after the last step";
  EXPECT_THAT(Ends(rounds, 6), ElementsAre(5));
  EXPECT_EQ(rounds.InAll(6), 3u);
}

}  // namespace
}  // namespace sluice::worker
