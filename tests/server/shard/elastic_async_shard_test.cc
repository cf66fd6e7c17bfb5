// SPDX-License-Identifier: Apache-2.0
// Tests a shard of mode ssp whose workers join and leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Returns a shard in mode ssp for ranks 0 to 2, of which rank 2 has no holder at the start.
ShardOptions ElasticSsp(uint32_t staleness) {
  ShardOptions options = SmallShard(3);
  options.exchange.mode = job::Mode::kSsp;
  options.exchange.staleness = staleness;
  options.exchange.membership = job::Membership::kElastic;
  options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
  options.parameters_agree = false;
  options.incarnations[2] = 0;
  return options;
}

protocol::ExchangeRequest OfGeneration(uint32_t generation, protocol::ExchangeRequest exchange) {
  exchange.sender.generation = generation;
  return exchange;
}

// Runs step 0 of ranks 0 and 1.
void BeginElastic(ShardUnderTest* shard) {
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    shard->Send(Contribution(0, 0, bundle, 100));
    ASSERT_EQ(shard->Ask(SkipOf(1, 0, bundle)).outcome, protocol::Outcome::kResult);
  }
}

TEST(ElasticAsyncShard, AResultNoLongerWaitsForARankThatLeft) {
  ShardUnderTest shard(ElasticSsp(/*staleness=*/0));
  BeginElastic(&shard);
  EXPECT_EQ(shard.Ask(Push(0, 1, 0, 1, 1)).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard->tick_due(), absl::InfiniteFuture());
  ASSERT_TRUE(shard->SetMembership(2, {100, 0, 0}).ok());
  EXPECT_LE(shard->tick_due(), shard.now());
  const auto results = ResultsByStream(shard->Tick(shard.now()));
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_EQ(results.at(1).step, 1u);
  EXPECT_THAT(results.at(1).members, ElementsAre(0));
  EXPECT_EQ(shard->tick_due(), absl::InfiniteFuture());
  EXPECT_EQ(shard.Ask(Push(1, 1, 0, 1, 1)).outcome, protocol::Outcome::kFenced);
}

TEST(ElasticAsyncShard, AnEndedShardSendsNothingMore) {
  ShardUnderTest shard(ElasticSsp(/*staleness=*/0));
  BeginElastic(&shard);
  EXPECT_EQ(shard.Ask(Push(0, 1, 0, 1, 1)).outcome, protocol::Outcome::kPending);
  ASSERT_TRUE(shard->SetMembership(2, {100, 0, 0}).ok());
  shard->End("the job has ended");
  EXPECT_THAT(shard->Tick(shard.now()), IsEmpty());
}

TEST(ElasticAsyncShard, ACheckpointNoLongerWaitsForARankThatLeft) {
  ShardUnderTest shard(ElasticSsp(/*staleness=*/3));
  BeginElastic(&shard);
  EXPECT_EQ(shard->NameCheckpoint(1), 3u);
  for (uint64_t step = 1; step <= 3; ++step) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      shard.Send(Push(0, step, bundle, 1, 0));
      if (step == 1) shard.Send(Push(1, step, bundle, 1, 0));
    }
  }
  ASSERT_TRUE(shard->SetMembership(2, {100, 0, 0}).ok());
  std::shared_ptr<const protocol::ShardSnapshot> saved;
  for (const ShardEffect& effect : shard->Tick(shard.now())) {
    if (const auto* written = std::get_if<WriteSnapshot>(&effect)) saved = written->snapshot;
  }
  ASSERT_NE(saved, nullptr);
  EXPECT_EQ(saved->step, 3u);
  EXPECT_THAT(saved->clocks, ElementsAre(3, 3, 3, 3, 3, 3));
}

TEST(ElasticAsyncShard, ANewcomerCatchesUpAndIsWaitedForThen) {
  ShardUnderTest shard(ElasticSsp(/*staleness=*/0));
  BeginElastic(&shard);
  for (uint64_t step = 1; step <= 4; ++step) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        shard.Send(Push(rank, step, bundle, 1, 0));
      }
    }
  }
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 102}).ok());
  shard->Tick(shard.now());
  // The newcomer's checkpoint is after step 2.
  for (uint64_t step = 3; step <= 4; ++step) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      const protocol::ExchangeReply answer = shard.Ask(OfGeneration(2, SkipOf(2, step, bundle)));
      ASSERT_EQ(answer.outcome, protocol::Outcome::kResult) << answer.message;
      EXPECT_TRUE(answer.exact) << "it does not have the newest parameters";
      EXPECT_EQ(answer.open_step, 5u);
      if (bundle == 0) {
        EXPECT_THAT(answer.members, ElementsAre(0, 1, 2));
      } else {
        EXPECT_THAT(answer.members, IsEmpty());
      }
    }
  }
  // Now a step waits for it.
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(shard.Ask(Push(rank, 5, 0, 1, 0)).outcome, protocol::Outcome::kPending);
  }
  EXPECT_THAT(ResultsByStream(shard.Send(OfGeneration(2, Push(2, 5, 0, 1, 0)))), SizeIs(3));
}

TEST(ElasticAsyncShard, TheLowestRankAtTheStartGivesTheParameters) {
  ShardOptions options = ElasticSsp(/*staleness=*/1);
  options.incarnations = {0, 101, 102};
  ShardUnderTest shard(options);
  EXPECT_EQ(shard.Ask(SkipOf(2, 0, 0)).outcome, protocol::Outcome::kPending);
  const auto results = ResultsByStream(shard.Send(Contribution(1, 0, 0, 100)));
  ASSERT_THAT(results, SizeIs(2));
  for (const auto& [stream, result] : results) {
    EXPECT_EQ(result.record.n, 1u);
    EXPECT_EQ(result.record.included.front().rank, 1u);
    EXPECT_FALSE(result.record.included.front().skipped);
  }
}

}  // namespace
}  // namespace sluice::server
