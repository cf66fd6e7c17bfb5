// SPDX-License-Identifier: Apache-2.0
// Tests a shard whose job has a guard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ShardOptions GuardedShard(uint32_t ranks, job::GuardPolicy policy) {
  ShardOptions options = SmallShard(ranks);
  options.exchange.guard = {.policy = policy, .limit = 4};
  return options;
}

// Closes both bundles of a step. Rank 0 sends `bad`, and all others send 1. Returns the effects of
// the last contribution.
std::vector<ShardEffect> CloseStep(ShardUnderTest* shard, uint32_t ranks, uint64_t step,
                                   float bad) {
  std::vector<ShardEffect> last;
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      last = shard->Send(Contribution(rank, step, bundle, rank == 0 ? bad : 1));
    }
  }
  return last;
}

protocol::ExchangeReply ResultOf(std::vector<ShardEffect> effects) {
  return ResultsByStream(effects).at(1);
}

TEST(GuardedShard, ClipsALargeContribution) {
  ShardUnderTest shard(GuardedShard(4, job::GuardPolicy::kClip));
  const std::vector<ShardEffect> effects = CloseStep(&shard, 4, 1, 100);
  const protocol::ExchangeReply result = ResultOf(effects);
  EXPECT_EQ(result.record.n, 4u);
  EXPECT_THAT(DecodedFrame(result.results.at(0), 3), Each(1));
  EXPECT_EQ(shard->Stats().agreement[0].clipped, 2u);
  EXPECT_TRUE(shard->Stats().agreement[0].suspect);
  EXPECT_FALSE(shard->Stats().agreement[1].suspect);
}

TEST(GuardedShard, LeavesALargeContributionOutOfTheMeanAndTheRecord) {
  ShardUnderTest shard(GuardedShard(4, job::GuardPolicy::kSkip));
  const std::vector<ShardEffect> effects = CloseStep(&shard, 4, 1, 100);
  const protocol::ExchangeReply result = ResultOf(effects);
  EXPECT_EQ(result.record.n, 3u);
  ASSERT_EQ(result.record.included.size(), 4u);
  EXPECT_TRUE(result.record.included[0].skipped);
  EXPECT_FALSE(result.record.included[1].skipped);
  EXPECT_THAT(DecodedFrame(result.results.at(0), 3), Each(1));
  std::vector<std::string> notices;
  for (const ShardEffect& effect : effects) {
    if (const auto* notice = std::get_if<Notice>(&effect)) notices.push_back(notice->text);
  }
  EXPECT_THAT(notices, ElementsAre(HasSubstr("a contribution of rank 0 has 100 times the median")));
}

TEST(GuardedShard, SumsAsBeforeIfNoRankDiffers) {
  for (const job::GuardPolicy policy : {job::GuardPolicy::kOff, job::GuardPolicy::kSkip}) {
    ShardUnderTest shard(GuardedShard(4, policy));
    const protocol::ExchangeReply result = ResultOf(CloseStep(&shard, 4, 1, 3));
    EXPECT_EQ(result.record.n, 4u);
    EXPECT_THAT(DecodedFrame(result.results.at(0), 3), Each(1.5f));
  }
}

TEST(GuardedShard, FindsLateWorkThatIsTooLarge) {
  ShardOptions options = GuardedShard(4, job::GuardPolicy::kSkip);
  options.exchange.quorum = 3;
  ShardUnderTest shard(std::move(options));
  for (const uint32_t rank : {1, 2, 3}) shard.Send(Contribution(rank, 1, 0, 1));
  for (const uint32_t rank : {1, 2, 3}) shard.Send(Contribution(rank, 1, 1, 1));
  shard.Send(Contribution(0, 1, 0, 100));
  protocol::ExchangeReply result;
  for (const uint32_t rank : {1, 2, 3}) {
    for (const auto& [stream, answer] : ResultsByStream(shard.Send(Contribution(rank, 2, 0, 1)))) {
      result = answer;
    }
  }
  EXPECT_EQ(result.record.n, 3u);
  ASSERT_EQ(result.record.included.size(), 4u);
  EXPECT_EQ(result.record.included[0].origin_step, 1u);
  EXPECT_TRUE(result.record.included[0].skipped);
  EXPECT_THAT(DecodedFrame(result.results.at(0), 2), Each(1));
}

// A large update must not move the parameters, and its sender gets an answer as usual.
TEST(GuardedShard, LeavesOutALargeUpdateInAsync) {
  ShardOptions options = GuardedShard(3, job::GuardPolicy::kSkip);
  options.exchange.mode = job::Mode::kAsync;
  options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
  options.parameters_agree = false;
  ShardUnderTest shard(std::move(options));
  shard.Send(Contribution(0, 0, 0, 100));
  for (const uint32_t rank : {1, 2}) shard.Send(SkipOf(rank, 0, 0));
  for (const uint32_t rank : {0, 1}) EXPECT_EQ(shard.Ask(Contribution(rank, 1, 0, 1)).record.n, 1u);
  const std::map<StreamId, protocol::ExchangeReply> results =
      ResultsByStream(shard.Send(Contribution(2, 1, 0, 100)));
  ASSERT_EQ(results.size(), 1u);
  const protocol::ExchangeReply& large = results.at(3);
  EXPECT_EQ(large.record.n, 0u);
  ASSERT_EQ(large.record.included.size(), 1u);
  EXPECT_TRUE(large.record.included[0].skipped);
  EXPECT_TRUE(shard->Stats().agreement[2].suspect);
  EXPECT_EQ(shard.Ask(Contribution(2, 2, 0, 1)).record.n, 1u);
}

TEST(GuardedShard, CannotReplay) {
  ShardOptions options = GuardedShard(4, job::GuardPolicy::kSkip);
  options.replay = true;
  EXPECT_THAT(Shard::Create(std::move(options)).status().ToString(), HasSubstr("guard"));
}

}  // namespace
}  // namespace sluice::server
