// SPDX-License-Identifier: Apache-2.0
// Tests a shard whose workers join and leave, with scripted schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns a shard for ranks 0 to 2, of which the first `begin` are present at the start. The shard
// keeps as many results as a newcomer may need.
ShardOptions ElasticShard(uint32_t begin, uint64_t replay_bytes = 1 << 20) {
  ShardOptions options = SmallShard(3);
  options.exchange.membership = job::Membership::kElastic;
  options.replay_bytes = replay_bytes;
  for (uint32_t rank = begin; rank < 3; ++rank) options.incarnations[rank] = 0;
  return options;
}

std::vector<std::string> WhoIsIn(const protocol::ClosingRecord& record) {
  std::vector<std::string> places;
  for (const protocol::Included& included : record.included) {
    EXPECT_EQ(included.origin_step, record.step);
    places.push_back(absl::StrCat(included.rank, included.skipped ? " skipped" : ""));
  }
  return places;
}

// Changes the sender of the request to a newcomer, whose incarnation is 200 + rank.
protocol::ExchangeRequest Newcomer(protocol::ExchangeRequest exchange) {
  exchange.sender.incarnation += 100;
  exchange.sender.generation = 2;
  return exchange;
}

// Ranks `first` to `end` - 1 contribute `value` to both bundles of the step.
void RunStepOf(ShardUnderTest* shard, uint32_t first, uint32_t end, uint64_t step, float value) {
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    for (uint32_t rank = first; rank < end; ++rank) {
      shard->Send(Contribution(rank, step, bundle, value));
    }
  }
}

TEST(ElasticShard, NobodyWaitsForARankThatNobodyHolds) {
  ShardUnderTest shard(ElasticShard(2));
  shard.Send(Contribution(0, 1, 0, 3));
  const auto results = ResultsByStream(shard.Send(Contribution(1, 1, 0, 6)));
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results.at(1).record.n, 2u);
  EXPECT_EQ(results.at(1).open_step, 1u) << "the contribution arrived in time";
  EXPECT_THAT(WhoIsIn(results.at(1).record), ElementsAre("0", "1"));
  EXPECT_EQ(shard->tick_due(), absl::InfiniteFuture());
}

TEST(ElasticShard, RemovedWhileItIsAwaited) {
  ShardUnderTest shard(ElasticShard(3));
  shard.Send(Contribution(0, 1, 0, 3));
  shard.Send(Contribution(1, 1, 0, 9));
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 0}).ok());
  EXPECT_LE(shard->tick_due(), shard.now());
  const auto results = ResultsByStream(shard->Tick(shard.now()));
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results.at(1).record.n, 2u);
  EXPECT_EQ(results.at(1).record.generation, 2u);
  EXPECT_THAT(DecodedFrame(results.at(1).results.at(0), 2), ElementsAre(6, 6));
  EXPECT_EQ(shard->tick_due(), absl::InfiniteFuture());
  RunStepOf(&shard, 0, 2, 1, 0);
  EXPECT_EQ(shard->open_step(), 2u);
}

TEST(ElasticShard, RemovedWhileItsContributionIsInTheOpenBundle) {
  ShardUnderTest shard(ElasticShard(3));
  shard.Send(Contribution(2, 1, 0, 9));
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 0}).ok());
  EXPECT_THAT(shard->Tick(shard.now()), IsEmpty());
  shard.Send(Contribution(0, 1, 0, 3));
  const auto results = ResultsByStream(shard.Send(Contribution(1, 1, 0, 6)));
  ASSERT_EQ(results.size(), 2u) << "the removed rank gets no result";
  EXPECT_THAT(WhoIsIn(results.at(1).record), ElementsAre("0", "1", "2"));
  EXPECT_EQ(results.at(1).record.n, 3u);
  EXPECT_THAT(DecodedFrame(results.at(1).results.at(0), 2), ElementsAre(6, 6));
  // The next bundle closes without the rank that left.
  shard.Send(Contribution(0, 1, 1, 3));
  EXPECT_EQ(ResultsByStream(shard.Send(Contribution(1, 1, 1, 6))).at(1).record.n, 2u);
}

TEST(ElasticShard, AZombieIsRefusedByName) {
  ShardUnderTest shard(ElasticShard(3));
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 0}).ok());
  const protocol::ExchangeReply removed = shard.Ask(Contribution(2, 1, 0, 9));
  EXPECT_EQ(removed.outcome, protocol::Outcome::kFenced);
  EXPECT_THAT(removed.message, HasSubstr("rank 2 was taken from"));
  protocol::ExchangeRequest nobody = Contribution(2, 1, 0, 9);
  nobody.sender.incarnation = 0;
  EXPECT_EQ(shard.Ask(nobody).outcome, protocol::Outcome::kFenced)
      << "incarnation 0 belongs to no worker";
  ASSERT_TRUE(shard->SetMembership(3, {100, 101, 202}).ok());
  const protocol::ExchangeReply replaced = shard.Ask(Contribution(2, 1, 0, 9));
  EXPECT_EQ(replaced.outcome, protocol::Outcome::kFenced);
  EXPECT_THAT(replaced.message, HasSubstr("held by another worker"));
  EXPECT_EQ(shard->Stats().contributions, 0u);
}

TEST(ElasticShard, ALearnerCatchesUpAndIsWaitedForThen) {
  ShardUnderTest shard(ElasticShard(2));
  for (uint64_t step = 1; step <= 3; ++step) RunStepOf(&shard, 0, 2, step, 4);
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 202}).ok());
  for (uint64_t step = 2; step <= 3; ++step) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      const protocol::ExchangeReply answer = shard.Ask(Newcomer(SkipOf(2, step, bundle)));
      EXPECT_EQ(answer.outcome, protocol::Outcome::kResult);
      EXPECT_EQ(answer.open_step, 4u) << "no bundle waits for the newcomer yet";
      EXPECT_THAT(WhoIsIn(answer.record), ElementsAre("0", "1"));
    }
  }
  // Step 4: bundle 0 closes without the newcomer, but the newcomer is in time for bundle 1.
  RunStepOf(&shard, 0, 1, 4, 4);
  shard.Send(Contribution(1, 4, 0, 4));
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 4, 0))).open_step, 5u);
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 4, 1))).outcome, protocol::Outcome::kPending);
  auto results = ResultsByStream(shard.Send(Contribution(1, 4, 1, 4)));
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results.at(3).open_step, 4u);
  EXPECT_THAT(WhoIsIn(results.at(3).record), ElementsAre("0", "1", "2 skipped"));
  EXPECT_EQ(results.at(3).record.n, 2u);
  // Step 5: bundle 1 waits for the newcomer, and bundle 0 does not.
  shard.Send(Contribution(0, 5, 0, 4));
  EXPECT_EQ(ResultsByStream(shard.Send(Contribution(1, 5, 0, 4))).size(), 2u);
  shard.Send(Contribution(0, 5, 1, 4));
  EXPECT_THAT(ResultsByStream(shard.Send(Contribution(1, 5, 1, 4))), IsEmpty());
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 5, 0))).open_step, 6u);
  shard.Send(Newcomer(SkipOf(2, 5, 1)));
  // Step 6: the newcomer is in time for both bundles and contributes from the next step on.
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 6, 0))).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 6, 1))).outcome, protocol::Outcome::kPending);
  RunStepOf(&shard, 0, 2, 6, 4);
  shard.Send(Contribution(0, 7, 0, 4));
  shard.Send(Contribution(1, 7, 0, 4));
  results = ResultsByStream(shard.Send(Newcomer(Contribution(2, 7, 0, 7))));
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results.at(1).record.n, 3u);
  EXPECT_THAT(DecodedFrame(results.at(1).results.at(0), 2), ElementsAre(5, 5));
}

TEST(ElasticShard, JoinsMidBundle) {
  ShardUnderTest shard(ElasticShard(2));
  RunStepOf(&shard, 0, 2, 1, 4);
  shard.Send(Contribution(0, 2, 0, 4));
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 202}).ok());
  EXPECT_EQ(ResultsByStream(shard.Send(Contribution(1, 2, 0, 4))).size(), 2u)
      << "the bundle does not wait for the newcomer";
  shard.Send(Newcomer(SkipOf(2, 2, 1)));
  shard.Send(Contribution(0, 2, 1, 4));
  EXPECT_EQ(ResultsByStream(shard.Send(Contribution(1, 2, 1, 4))).size(), 3u);
}

TEST(ElasticShard, ALearnersWorkIsRefused) {
  ShardUnderTest shard(ElasticShard(2));
  RunStepOf(&shard, 0, 2, 1, 4);
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 202}).ok());
  const protocol::ExchangeReply late = shard.Ask(Newcomer(Contribution(2, 1, 0, 9)));
  EXPECT_EQ(late.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(late.message, HasSubstr("has to skip"));
  EXPECT_EQ(shard.Ask(Newcomer(Contribution(2, 2, 0, 9))).outcome, protocol::Outcome::kInvalid);
  EXPECT_EQ(shard->Stats().contributions, 4u);
}

TEST(ElasticShard, KeysOfALearnerAreAskedFor) {
  ShardUnderTest shard(ElasticShard(3));
  shard.Send(Contribution(2, 1, 0, 9));
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 202}).ok());
  EXPECT_EQ(shard.Ask(Newcomer(KeysOf(SkipOf(2, 1, 0)))).outcome, protocol::Outcome::kNeed)
      << "the shard has only the predecessor's contribution";
  shard.Send(Newcomer(SkipOf(2, 1, 0)));
  EXPECT_EQ(shard.Ask(Newcomer(KeysOf(SkipOf(2, 1, 0)))).outcome, protocol::Outcome::kPending);
}

TEST(ElasticShard, APredecessorsPartStaysAndStandsForTheRank) {
  ShardUnderTest shard(ElasticShard(3));
  for (uint32_t bundle = 0; bundle < 2; ++bundle) shard.Send(Contribution(2, 1, bundle, 9));
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 202}).ok());
  // The successor of rank 2 has a stream, but has sent nothing for bundle 1 yet.
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 1, 0))).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 1, 0))).outcome, protocol::Outcome::kPending)
      << "a repeated skip must wait too";
  RunStepOf(&shard, 0, 1, 1, 3);
  const auto first = ResultsByStream(shard.Send(Contribution(1, 1, 0, 6)));
  ASSERT_EQ(first.size(), 3u);
  EXPECT_THAT(WhoIsIn(first.at(3).record), ElementsAre("0", "1", "2"));
  EXPECT_EQ(first.at(3).record.n, 3u);
  EXPECT_EQ(first.at(3).open_step, 1u);
  EXPECT_EQ(ResultsByStream(shard.Send(Contribution(1, 1, 1, 6))).size(), 2u)
      << "the newcomer has sent nothing for bundle 1";
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 1, 1))).open_step, 2u)
      << "the skip arrives after the bundle has closed";
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 1, 0))).open_step, 1u)
      << "the skip was in time and is repeated";
  EXPECT_EQ(shard->Stats().not_reproducible, 0u);
  EXPECT_EQ(shard->Stats().refused_invalid, 0u);
}

TEST(ElasticShard, AllWhoBeganLeaveAndLearnersGoOn) {
  ShardUnderTest shard(ElasticShard(2));
  RunStepOf(&shard, 0, 2, 1, 4);
  shard.Send(Contribution(0, 2, 0, 8));
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 202}).ok());
  ASSERT_TRUE(shard->SetMembership(3, {0, 0, 202}).ok());
  EXPECT_THAT(ResultsByStream(shard->Tick(shard.now())), IsEmpty())
      << "a bundle closes only when a rank wants its result";
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 1, 0))).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 1, 1))).outcome, protocol::Outcome::kResult);
  const protocol::ExchangeReply first = shard.Ask(Newcomer(SkipOf(2, 2, 0)));
  EXPECT_EQ(first.outcome, protocol::Outcome::kResult);
  EXPECT_THAT(WhoIsIn(first.record), ElementsAre("0", "2 skipped"));
  EXPECT_EQ(first.record.n, 1u);
  EXPECT_EQ(shard.Ask(Newcomer(SkipOf(2, 2, 1))).record.n, 0u);
  EXPECT_EQ(shard.Ask(Newcomer(Contribution(2, 3, 0, 5))).record.n, 1u);
  EXPECT_EQ(shard.Ask(Newcomer(Contribution(2, 3, 1, 5))).record.n, 1u);
  EXPECT_EQ(shard->open_step(), 4u);
}

TEST(ElasticShard, ItSaysThatItWaitsForNewcomers) {
  ShardUnderTest shard(ElasticShard(1));
  shard.Send(Contribution(0, 1, 0, 8));
  shard.Send(Contribution(0, 1, 1, 8));
  ASSERT_TRUE(shard->SetMembership(2, {0, 0, 202}).ok());
  shard->Tick(shard.now());
  shard.Send(Newcomer(SkipOf(2, 1, 0)));
  shard.Send(Newcomer(SkipOf(2, 1, 1)));
  shard.Send(Newcomer(SkipOf(2, 2, 0)));  // The newcomer is in time, so it becomes a member.
  EXPECT_EQ(shard->open_step(), 2u);
  protocol::ExchangeRequest zombie = Contribution(2, 2, 1, 5);
  EXPECT_EQ(shard.Ask(zombie).outcome, protocol::Outcome::kFenced);
  shard.Advance(absl::Seconds(6));
  EXPECT_THAT(shard->Tick(shard.now()), IsEmpty()) << "no contribution is waiting";
}

TEST(ElasticShard, ItSaysThatNobodyIsLeftToWaitFor) {
  ShardUnderTest shard(ElasticShard(2));
  shard.Send(Contribution(0, 1, 0, 8));
  ASSERT_TRUE(shard->SetMembership(2, {0, 0, 202}).ok());
  shard.Advance(absl::Seconds(6));
  const std::vector<ShardEffect> effects = shard->Tick(shard.now());
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_THAT(std::get<Notice>(effects[0]).text, HasSubstr("6s for newcomers"));
}

TEST(ElasticShard, TooFarBehindForTheLogIsToldSo) {
  ShardUnderTest shard(ElasticShard(2, /*replay_bytes=*/1));
  for (uint64_t step = 1; step <= 6; ++step) RunStepOf(&shard, 0, 2, step, 4);
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 202}).ok());
  const protocol::ExchangeReply answer = shard.Ask(Newcomer(SkipOf(2, 1, 0)));
  EXPECT_EQ(answer.outcome, protocol::Outcome::kFenced);
  EXPECT_THAT(answer.message, HasSubstr("too far behind"));
  EXPECT_THAT(answer.message, HasSubstr("checkpoint.replay_limit"));
  EXPECT_EQ(shard->Stats().not_reproducible, 0u) << "the other ranks continue";
  RunStepOf(&shard, 0, 2, 7, 4);
  EXPECT_EQ(shard->open_step(), 8u);
}

TEST(ElasticShard, ALearnerThatSaysNothingDoesNotKeepTheLog) {
  ShardUnderTest shard(ElasticShard(2, /*replay_bytes=*/1));
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 202}).ok());
  for (uint64_t step = 1; step <= 20; ++step) RunStepOf(&shard, 0, 2, step, 4);
  EXPECT_LE(shard->Stats().log_results, 4u);
}

TEST(ElasticShard, WhoIsGoneHoldsNoResults) {
  ShardUnderTest shard(ElasticShard(3));
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    for (uint32_t rank = 0; rank < 3; ++rank) shard.Send(Contribution(rank, 1, bundle, 1));
  }
  ASSERT_TRUE(shard->SetMembership(2, {100, 101, 0}).ok());
  shard->Tick(shard.now());
  RunStepOf(&shard, 0, 2, 2, 1);
  RunStepOf(&shard, 0, 2, 3, 1);
  shard->ReleaseResults(2);
  EXPECT_EQ(shard->results_from(), 3u);
}

TEST(ElasticShard, LargeFramesAreSummedPastRanksThatAreAbsent) {
  ShardOptions options = ElasticShard(3);
  options.incarnations[0] = 0;
  options.straggler_notice = absl::InfiniteDuration();
  ShardUnderTest shard(std::move(options));
  shard.Send(Contribution(1, 1, 0, 3));
  EXPECT_EQ(shard->Stats().held_bytes, 0u);
  EXPECT_THAT(
      DecodedFrame(ResultsByStream(shard.Send(Contribution(2, 1, 0, 5))).at(3).results.at(0), 2),
      ElementsAre(4, 4));
}

TEST(ElasticShard, TheLowestRankThatBeginsBringsTheParameters) {
  ShardOptions options = ElasticShard(3);
  options.incarnations[0] = 0;
  options.parameters_agree = false;
  ShardUnderTest shard(std::move(options));
  EXPECT_EQ(shard.Ask(SkipOf(1, 0, 0)).outcome, protocol::Outcome::kInvalid);
  EXPECT_EQ(shard.Ask(Contribution(2, 0, 0, 1)).outcome, protocol::Outcome::kInvalid);
  shard.Send(SkipOf(2, 0, 0));
  // Rank 1 leaves before it has sent the initial parameters, which no other rank has.
  ASSERT_TRUE(shard->SetMembership(2, {0, 0, 102}).ok());
  EXPECT_THAT(ResultsByStream(shard->Tick(shard.now())), IsEmpty());
  EXPECT_EQ(shard->open_step(), 0u);
}

TEST(ElasticShard, DoesNotGoWithWhatItIsNot) {
  ShardOptions replay = ElasticShard(2);
  replay.replay = true;
  EXPECT_EQ(Shard::Create(replay).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Shard::Create(ElasticShard(0)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ElasticShard, UpdatesOnTheShardsGoOn) {
  ShardOptions options = ElasticShard(2);
  options.parameters_agree = false;
  options.rule = job::OptimizerSpec{.name = "sgd", .location = job::UpdateLocation::kShards};
  ShardUnderTest shard(std::move(options));
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    shard.Send(Contribution(0, 0, bundle, 10));
    shard.Send(SkipOf(1, 0, bundle));
  }
  protocol::ExchangeRequest first = Contribution(0, 1, 0, 2);
  first.rate = 0.5f;
  first.acked_step = 0;
  shard.Send(first);
  ASSERT_TRUE(shard->SetMembership(2, {100, 0, 0}).ok());
  const auto results = ResultsByStream(shard->Tick(shard.now()));
  ASSERT_EQ(results.size(), 1u);
  EXPECT_THAT(DecodedFrame(results.at(1).results.at(0), 2), ElementsAre(-1, -1));
}

}  // namespace
}  // namespace sluice::server
