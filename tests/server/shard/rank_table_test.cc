// SPDX-License-Identifier: Apache-2.0
#include "server/shard/rank_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

bool All(uint32_t /*rank*/) { return true; }
bool None(uint32_t /*rank*/) { return false; }
bool OnlyRankOne(uint32_t rank) { return rank == 1; }

protocol::ExchangeRequest RequestOf(uint32_t rank, uint64_t step) { return SkipOf(rank, step, 0); }

TEST(RankTable, AnAcknowledgementCountsOnce) {
  const ShardOptions options = SmallShard(2);
  RankTable ranks(&options, 2);
  EXPECT_FALSE(ranks.Acknowledge(0, 0));
  EXPECT_TRUE(ranks.Acknowledge(0, 4));
  EXPECT_FALSE(ranks.Acknowledge(0, 4));
  EXPECT_FALSE(ranks.Acknowledge(0, 3));
  EXPECT_EQ(ranks.acked(0), 4u);
  EXPECT_EQ(ranks.acked(1), 0u);
}

TEST(RankTable, TheSlowestSelectedRankDecidesWhichStepsAllHave) {
  const ShardOptions options = SmallShard(2);
  RankTable ranks(&options, 2);
  ranks.Acknowledge(1, 4);
  EXPECT_EQ(ranks.LowestAcked(All), 0u);
  EXPECT_EQ(ranks.LowestAcked(OnlyRankOne), 4u);
  EXPECT_EQ(ranks.LowestAcked(None), std::nullopt);
  ranks.Acknowledge(0, 7);
  EXPECT_EQ(ranks.LowestAcked(All), 4u);
}

TEST(RankTable, TheLowestRequestedStepIsAtMostTheOpenOne) {
  const ShardOptions options = SmallShard(2);
  RankTable ranks(&options, 2);
  ranks.Reach(0, 6);
  ranks.Reach(1, 9);
  ranks.Reach(1, 5);
  EXPECT_EQ(ranks.LowestReached(8, All), 6u);
  EXPECT_EQ(ranks.LowestReached(8, OnlyRankOne), 8u);
  EXPECT_EQ(ranks.LowestReached(10, OnlyRankOne), 9u);
  EXPECT_EQ(ranks.LowestReached(10, None), 10u);
}

TEST(RankTable, RemembersTheFurthestStepOfThePresentHolders) {
  const ShardOptions options = SmallShard(2);
  RankTable ranks(&options, 2);
  EXPECT_EQ(ranks.FurthestStep(All), 0u);
  ranks.NoteStep(0, 9);
  ranks.NoteStep(0, 3);
  ranks.Reach(1, 1'000);
  EXPECT_EQ(ranks.FurthestStep(All), 1'000u);
  EXPECT_EQ(ranks.FurthestStep(None), 0u);
  ranks.Replace(1, 5);
  EXPECT_EQ(ranks.FurthestStep(All), 9u);
  EXPECT_EQ(ranks.FurthestStep(OnlyRankOne), 0u);
}

TEST(RankTable, ANewHolderInheritsTheStepsOfItsPredecessorAndNothingElse) {
  ShardOptions options = SmallShard(2);
  options.unanswered_bytes = 100;
  RankTable ranks(&options, 2);
  ranks.Acknowledge(0, 4);
  ranks.Reach(0, 5);
  ranks.NoteAnswer(0, 7);
  EXPECT_FALSE(ranks.MayBeInherited(RequestOf(0, 1)));
  ranks.Replace(0, 6);
  EXPECT_TRUE(ranks.MayBeInherited(RequestOf(0, 6)));
  EXPECT_FALSE(ranks.MayBeInherited(RequestOf(0, 7)));
  EXPECT_FALSE(ranks.MayBeInherited(RequestOf(1, 6)));
  EXPECT_EQ(ranks.acked(0), 0u);
  EXPECT_EQ(ranks.LowestReached(9, All), 0u);
  EXPECT_FALSE(ranks.MayStayUnanswered(0, 7, 1));
}

TEST(RankTable, AContributionStaysUnansweredWithinTheLimitOnAKnownStream) {
  ShardOptions options = SmallShard(2);
  options.unanswered_bytes = 100;
  RankTable ranks(&options, 2);
  EXPECT_FALSE(ranks.MayStayUnanswered(0, 7, 10)) << "the stream has had no answer";
  ranks.NoteAnswer(0, 7);
  EXPECT_TRUE(ranks.MayStayUnanswered(0, 7, 100));
  EXPECT_FALSE(ranks.MayStayUnanswered(0, 7, 101));
  EXPECT_FALSE(ranks.MayStayUnanswered(0, 8, 10)) << "the stream is new";
  EXPECT_FALSE(ranks.MayStayUnanswered(1, 7, 10)) << "it is another rank";
  ranks.AddUnanswered(0, 60);
  EXPECT_TRUE(ranks.MayStayUnanswered(0, 7, 40));
  EXPECT_FALSE(ranks.MayStayUnanswered(0, 7, 41));
  ranks.RemoveUnanswered(0, 60);
  EXPECT_TRUE(ranks.MayStayUnanswered(0, 7, 100));
}

TEST(RankTable, WithoutALimitEveryContributionIsAnswered) {
  const ShardOptions options = SmallShard(1);
  RankTable ranks(&options, 2);
  ranks.NoteAnswer(0, 7);
  EXPECT_FALSE(ranks.MayStayUnanswered(0, 7, 0));
}

TEST(RankTable, OnlyAQuorumNeedsMemoryForAdmittedContributions) {
  ShardOptions options = SmallShard(3);
  EXPECT_EQ(RankTable::ReservedBytes(options, 2), 0u);
  options.exchange.quorum = 2;
  EXPECT_EQ(RankTable::ReservedBytes(options, 2), 6 * sizeof(RankTable::Admitted));
  RankTable ranks(&options, 2);
  ranks.SetAdmitted(1, 2, {.step = 4, .checksum = 9});
  EXPECT_EQ(ranks.admitted(1, 2).step, 4u);
  EXPECT_EQ(ranks.admitted(1, 2).checksum, 9u);
  EXPECT_EQ(ranks.admitted(0, 2).step, 0u);
  EXPECT_EQ(ranks.admitted(1, 1).step, 0u);
}

}  // namespace
}  // namespace sluice::server
