// SPDX-License-Identifier: Apache-2.0
#include "server/shard/rank_clocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the options of a job in mode `ssp` with two ranks, whose first step is 5.
ShardOptions SspOptions(uint32_t staleness) {
  ShardOptions options = SmallShard(2);
  options.exchange.mode = job::Mode::kSsp;
  options.exchange.staleness = staleness;
  options.first_step = 5;
  return options;
}

TEST(RankClocks, TheOpenStepIsTheLowestClock) {
  const ShardOptions options = SspOptions(1);
  RankClocks clocks(&options, 2);
  EXPECT_EQ(clocks.open_step(), 5u);
  clocks.Advance(0, 0, 5);
  clocks.Advance(0, 1, 5);
  EXPECT_TRUE(clocks.IsRepeat(0, 1, 5));
  EXPECT_FALSE(clocks.IsRepeat(0, 1, 6));
  EXPECT_EQ(clocks.WhyNot(0, 1, 6), "");
  EXPECT_THAT(clocks.WhyNot(0, 1, 7), HasSubstr("ahead of step 6"));
  EXPECT_EQ(clocks.least(0), 6u);
  EXPECT_EQ(clocks.least(1), 5u);
  EXPECT_EQ(clocks.open_step(), 5u);
  clocks.Advance(1, 0, 5);
  EXPECT_EQ(clocks.least(1), 5u);
  clocks.Advance(1, 1, 5);
  EXPECT_EQ(clocks.open_step(), 6u);
}

TEST(RankClocks, TheFirstStepFollowsTheExchangeOfParameters) {
  ShardOptions options = SspOptions(1);
  options.parameters_agree = false;
  RankClocks clocks(&options, 1);
  EXPECT_EQ(clocks.open_step(), 0u);
  clocks.Advance(0, 0, 0);
  EXPECT_FALSE(clocks.IsRepeat(0, 0, 5));
  EXPECT_EQ(clocks.WhyNot(0, 0, 5), "");
  EXPECT_EQ(clocks.open_step(), 0u);
}

TEST(RankClocks, AShardWithoutBundlesIsAtTheFirstStep) {
  const ShardOptions options = SspOptions(1);
  EXPECT_EQ(RankClocks(&options, 0).open_step(), 5u);
}

TEST(RankClocks, AResultWaitsForTheRanksThatAreTooFarBehind) {
  const ShardOptions options = SspOptions(2);
  RankClocks clocks(&options, 1);
  EXPECT_TRUE(clocks.IsWithinBound(0, 0));
  EXPECT_TRUE(clocks.IsWithinBound(0, 6));
  EXPECT_FALSE(clocks.IsWithinBound(0, 7));
  clocks.Advance(0, 0, 5);
  EXPECT_FALSE(clocks.IsWithinBound(0, 7));
  clocks.Advance(0, 1, 5);
  EXPECT_TRUE(clocks.IsWithinBound(0, 7));
}

TEST(RankClocks, TheParametersOfStepZeroWaitForNoRank) {
  ShardOptions options = SspOptions(0);
  options.parameters_agree = false;
  EXPECT_TRUE(RankClocks(&options, 1).IsWithinBound(0, 0));
}

TEST(RankClocks, OnlyModesWithABoundHoldAResult) {
  ShardOptions options = SspOptions(0);
  EXPECT_FALSE(RankClocks(&options, 1).IsWithinBound(0, 5));
  options.exchange.mode = job::Mode::kAsync;
  EXPECT_TRUE(RankClocks(&options, 1).IsWithinBound(0, 1000));
}

TEST(RankClocks, RememberTheHighestRequestOfEachRank) {
  const ShardOptions options = SspOptions(1);
  RankClocks clocks(&options, 1);
  EXPECT_EQ(clocks.furthest_reached(), 0u);
  clocks.Reach(0, 9);
  clocks.Reach(0, 6);
  EXPECT_EQ(clocks.furthest_reached(), 9u);
  EXPECT_EQ(clocks.least_reached(), 0u);
  clocks.Reach(1, 7);
  EXPECT_EQ(clocks.least_reached(), 7u);
  clocks.Replace(0);
  EXPECT_EQ(clocks.furthest_reached(), 7u);
  EXPECT_EQ(clocks.least_reached(), 0u);
}

TEST(RankClocks, GoOnFromASnapshot) {
  const ShardOptions options = SspOptions(1);
  RankClocks saved(&options, 2);
  saved.Advance(0, 0, 5);
  saved.Advance(1, 0, 5);
  saved.Advance(1, 1, 5);
  saved.Advance(1, 1, 6);
  protocol::ShardSnapshot snapshot;
  snapshot.step = 4;
  snapshot.clocks = saved.Save(4);
  EXPECT_THAT(snapshot.clocks, ElementsAre(5, 4, 5, 6));
  RankClocks restored(&options, 2);
  ASSERT_EQ(restored.CheckRestorable(snapshot), absl::OkStatus());
  restored.Restore(snapshot);
  EXPECT_TRUE(restored.IsRepeat(0, 0, 5));
  EXPECT_FALSE(restored.IsRepeat(0, 0, 6));
  EXPECT_TRUE(restored.IsRepeat(1, 1, 6));
  EXPECT_FALSE(restored.IsRepeat(1, 1, 7));
  EXPECT_EQ(restored.least(0), 5u);
  EXPECT_EQ(restored.least(1), 6u);
}

TEST(RankClocks, OfAnotherNumberOfRanksBeginAtTheFirstStep) {
  ShardOptions options = SspOptions(1);
  options.restored_ranks = 3;
  RankClocks clocks(&options, 1);
  protocol::ShardSnapshot snapshot;
  snapshot.step = 4;
  snapshot.clocks = {4, 8, 9};
  ASSERT_EQ(clocks.CheckRestorable(snapshot), absl::OkStatus());
  clocks.Restore(snapshot);
  EXPECT_FALSE(clocks.IsRepeat(0, 1, 5));
  EXPECT_EQ(clocks.open_step(), 5u);
}

// Three ranks, of which the last one has no holder.
class ElasticClocksTest : public ::testing::Test {
 protected:
  ElasticClocksTest() {
    options_.exchange.mode = job::Mode::kSsp;
    options_.exchange.staleness = 1;
    options_.exchange.membership = job::Membership::kElastic;
    options_.first_step = 5;
    options_.incarnations[2] = 0;
  }
  static void AdvanceTo(RankClocks* clocks, uint32_t rank, uint64_t from, uint64_t to) {
    for (uint64_t step = from; step <= to; ++step) clocks->Advance(0, rank, step);
  }

  ShardOptions options_ = SmallShard(3);
};

TEST_F(ElasticClocksTest, ARankWithoutAHolderDoesNotCount) {
  RankClocks clocks(&options_, 1);
  EXPECT_EQ(clocks.members(0), 2u);
  AdvanceTo(&clocks, 0, 5, 6);
  AdvanceTo(&clocks, 1, 5, 5);
  EXPECT_EQ(clocks.least(0), 6u);
  clocks.Reach(0, 6);
  clocks.Reach(1, 5);
  EXPECT_EQ(clocks.least_reached(), 5u);
  EXPECT_THAT(clocks.Save(4), ElementsAre(6, 5, 4));
}

TEST_F(ElasticClocksTest, OthersDoNotWaitForARankThatLeft) {
  RankClocks clocks(&options_, 1);
  AdvanceTo(&clocks, 0, 5, 7);
  AdvanceTo(&clocks, 1, 5, 5);
  EXPECT_FALSE(clocks.IsWithinBound(0, 7));
  clocks.Replace(1);
  EXPECT_EQ(clocks.members(0), 1u);
  EXPECT_TRUE(clocks.IsWithinBound(0, 7));
  EXPECT_EQ(clocks.open_step(), 8u);
  clocks.Replace(0);
  EXPECT_EQ(clocks.open_step(), 8u) << "the open step never falls";
}

TEST_F(ElasticClocksTest, ANewcomerCountsOnceItHasReachedTheSlowest) {
  RankClocks clocks(&options_, 1);
  AdvanceTo(&clocks, 0, 5, 9);
  AdvanceTo(&clocks, 1, 5, 7);
  clocks.Replace(2);
  EXPECT_THAT(clocks.WhyNot(0, 2, 4), HasSubstr("must be 5 to 8"));
  EXPECT_THAT(clocks.WhyNot(0, 2, 9), HasSubstr("must be 5 to 8"));
  EXPECT_EQ(clocks.WhyNot(0, 2, 6), "");
  EXPECT_FALSE(clocks.IsRepeat(0, 2, 6));
  clocks.Reach(2, 6);
  clocks.Advance(0, 2, 6);
  EXPECT_EQ(clocks.members(0), 2u) << "it has not reached rank 1";
  EXPECT_EQ(clocks.open_step(), 8u);
  EXPECT_THAT(clocks.Save(7), ElementsAre(9, 7, 7));
  EXPECT_THAT(clocks.WhyNot(0, 2, 8), HasSubstr("ahead of step 7"));
  EXPECT_TRUE(clocks.IsRepeat(0, 2, 6));
  clocks.Advance(0, 2, 7);
  EXPECT_EQ(clocks.members(0), 3u);
  EXPECT_EQ(clocks.open_step(), 8u);
  AdvanceTo(&clocks, 1, 8, 8);
  EXPECT_EQ(clocks.open_step(), 8u) << "others wait for it now";
}

TEST(RankClocks, RefuseASnapshotThatDoesNotFit) {
  const ShardOptions options = SspOptions(1);
  const RankClocks clocks(&options, 1);
  protocol::ShardSnapshot snapshot;
  snapshot.step = 4;
  snapshot.clocks = {4};
  EXPECT_THAT(clocks.CheckRestorable(snapshot).message(),
              HasSubstr("1 clocks of ranks, expected 2"));
  snapshot.clocks = {4, 3};
  EXPECT_THAT(clocks.CheckRestorable(snapshot).message(),
              HasSubstr("clock is 3, in a checkpoint after step 4"));
  snapshot.clocks = {uint64_t{1} << 41, 4};
  EXPECT_EQ(clocks.CheckRestorable(snapshot).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::server
