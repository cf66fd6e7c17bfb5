// A rack's shard hands sums on and closes with what comes back; the shard above weighs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ShardOptions RackShard(uint32_t ranks) {
  ShardOptions options = SmallShard(ranks);
  options.hands_on = true;
  return options;
}

std::vector<std::shared_ptr<const BundleSum>> SumsIn(const std::vector<ShardEffect>& effects) {
  std::vector<std::shared_ptr<const BundleSum>> sums;
  for (const ShardEffect& effect : effects) {
    if (const auto* summed = std::get_if<BundleSummed>(&effect)) sums.push_back(summed->sum);
  }
  return sums;
}

TEST(RackShard, HandsOnWhatAllSentAndClosesWithWhatComesBack) {
  ShardUnderTest shard(RackShard(2));
  EXPECT_THAT(SumsIn(shard.Send(Contribution(0, 1, 0, 1))), IsEmpty());
  const std::vector<ShardEffect> effects = shard.Send(Contribution(1, 1, 0, 2));
  const auto sums = SumsIn(effects);
  ASSERT_THAT(sums, SizeIs(1));
  EXPECT_EQ(sums[0]->step, 1u);
  EXPECT_EQ(sums[0]->n, 2u);
  EXPECT_THAT(sums[0]->sum, ElementsAre(3, 3));  // Not divided.
  EXPECT_THAT(ResultsByStream(effects), IsEmpty());
  const auto results =
      ResultsByStream(shard->Publish({.step = 1, .bundle = 0, .n = 5, .mean = {7, -8}}));
  ASSERT_THAT(results, SizeIs(2));
  EXPECT_EQ(results.at(1).record.n, 5u);
  EXPECT_THAT(DecodedFrame(results.at(2).results[0], 2), ElementsAre(7, -8));
  EXPECT_EQ(shard->open_step(), 1u);  // Bundle 1 is open.
}

TEST(RackShard, RepeatsWaitWhileTheSumIsAboveAndOtherBytesAreRefused) {
  ShardUnderTest shard(RackShard(1));
  shard.Send(Contribution(0, 1, 0, 1));
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 1)).outcome, Outcome::kPending);
  EXPECT_EQ(shard.Ask(KeysOf(Contribution(0, 1, 0, 1))).outcome, Outcome::kPending);
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 2)).outcome, Outcome::kInvalid);
  shard->Publish({.step = 1, .bundle = 0, .n = 1, .mean = {1, 1}});
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 1)).outcome, Outcome::kResult);
}

// Its result comes when the whole step is done above; meanwhile the sender needs the credits for
// the rest of the step.
TEST(RackShard, AnswersAtOnceWhateverMayStayUnanswered) {
  ShardOptions options = RackShard(2);
  options.unanswered_bytes = 1 << 20;
  ShardUnderTest shard(options);
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 1)).outcome, Outcome::kPending);
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 1, 1)).outcome, Outcome::kPending);
}

TEST(RackShard, WhereAllSkipItSaysSoAndTakesTheMeanOfOthers) {
  ShardUnderTest shard(RackShard(1));
  const auto sums = SumsIn(shard.Send(SkipOf(0, 1, 0)));
  ASSERT_THAT(sums, SizeIs(1));
  EXPECT_EQ(sums[0]->n, 0u);
  EXPECT_THAT(sums[0]->sum, IsEmpty());
  const auto results =
      ResultsByStream(shard->Publish({.step = 1, .bundle = 0, .n = 3, .mean = {4, 4}}));
  EXPECT_EQ(results.at(1).record.n, 3u);
  EXPECT_THAT(DecodedFrame(results.at(1).results[0], 2), ElementsAre(4, 4));
}

TEST(RackShard, WhereNobodyContributedAboveNothingIsPublished) {
  ShardUnderTest shard(RackShard(1));
  shard.Send(Contribution(0, 1, 0, 1));
  const auto results =
      ResultsByStream(shard->Publish({.step = 1, .bundle = 0, .n = 0, .mean = {}}));
  EXPECT_EQ(results.at(1).record.n, 0u);
  EXPECT_THAT(results.at(1).results, IsEmpty());
  EXPECT_EQ(results.at(1).version, 0u);
}

TEST(RackShard, WhatIsOfAnotherStepOrWasPublishedChangesNothing) {
  ShardUnderTest shard(RackShard(1));
  const Publication publication{.step = 1, .bundle = 0, .n = 1, .mean = {1, 1}};
  EXPECT_THAT(shard->Publish(publication), IsEmpty());  // Nothing was handed on.
  shard.Send(Contribution(0, 1, 0, 1));
  EXPECT_THAT(shard->Publish({.step = 2, .bundle = 0, .n = 1, .mean = {1, 1}}), IsEmpty());
  EXPECT_THAT(shard->Publish({.step = 1, .bundle = 9, .n = 1, .mean = {1, 1}}), IsEmpty());
  EXPECT_THAT(ResultsByStream(shard->Publish(publication)), SizeIs(1));
  EXPECT_THAT(shard->Publish(publication), IsEmpty());
}

TEST(RackShard, WhatCameEarlyIsHandedOnWhenItsStepOpens) {
  ShardUnderTest shard(RackShard(1));
  shard.Send(Contribution(0, 1, 0, 1));
  shard.Send(Contribution(0, 1, 1, 1));
  Exchange early = Contribution(0, 2, 0, 5);
  early.acked_step = 0;
  EXPECT_THAT(SumsIn(shard.Send(early)), IsEmpty());
  shard->Publish({.step = 1, .bundle = 0, .n = 1, .mean = {1, 1}});
  const auto sums = SumsIn(shard->Publish({.step = 1, .bundle = 1, .n = 1, .mean = {1, 1, 1, 1}}));
  ASSERT_THAT(sums, SizeIs(1));
  EXPECT_EQ(sums[0]->step, 2u);
  EXPECT_THAT(sums[0]->sum, ElementsAre(5, 5));
}

TEST(RackShard, ACheckpointIsNamedByWhatIsPublished) {
  ShardUnderTest shard(RackShard(1));
  for (uint64_t step = 1; step <= 3; ++step) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      Exchange exchange = Contribution(0, step, bundle, 1);
      exchange.checkpoint_step = step > 1 ? 3 : 0;
      shard.Send(exchange);
    }
    bool taken = false;
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      const size_t count = bundle == 0 ? 2 : 4;
      const auto effects = shard->Publish({.step = step,
                                           .bundle = bundle,
                                           .n = 1,
                                           .mean = std::vector<float>(count, 1),
                                           .checkpoint_step = step < 3 ? uint64_t{3} : 0});
      EXPECT_EQ(ResultsByStream(effects).at(1).checkpoint_step, 3u);
      for (const ShardEffect& effect : effects) {
        taken = taken || std::holds_alternative<TakeSnapshot>(effect);
      }
    }
    EXPECT_EQ(taken, step == 3);
  }
}

ShardOptions ShardOfRelays() {
  ShardOptions options = SmallShard(2);
  options.weights = {3, 1};
  return options;
}

Exchange Weighing(Exchange exchange, uint32_t weight) {
  exchange.weight = weight;
  return exchange;
}

TEST(ShardOfRelays, DividesByTheSumOfWeights) {
  ShardUnderTest shard(ShardOfRelays());
  shard.Send(Weighing(Contribution(0, 1, 0, 9), 3));  // A sum of three.
  const auto results = ResultsByStream(shard.Send(Contribution(1, 1, 0, 3)));
  ASSERT_THAT(results, SizeIs(2));
  EXPECT_THAT(DecodedFrame(results.at(1).results[0], 2), ElementsAre(3, 3));
  const ClosingRecord& record = results.at(1).record;
  EXPECT_EQ(record.n, 4u);
  EXPECT_EQ(record.included[0].weight, 3u);
  EXPECT_EQ(record.included[1].weight, 1u);
}

TEST(ShardOfRelays, WhoSkipsAddsNothingToTheDivisor) {
  ShardUnderTest shard(ShardOfRelays());
  shard.Send(SkipOf(0, 1, 0));
  const auto results = ResultsByStream(shard.Send(Contribution(1, 1, 0, 3)));
  EXPECT_EQ(results.at(1).record.n, 1u);
  EXPECT_THAT(DecodedFrame(results.at(1).results[0], 2), ElementsAre(3, 3));
}

TEST(ShardOfRelays, MoreThanARackHasIsRefused) {
  ShardUnderTest shard(ShardOfRelays());
  for (const uint32_t weight : {0u, 2u}) {
    const ExchangeAnswer answer = shard.Ask(Weighing(Contribution(1, 1, 0, 3), weight));
    EXPECT_EQ(answer.outcome, Outcome::kInvalid);
    EXPECT_THAT(answer.message, HasSubstr("contributions; it may have 1"));
  }
  ShardUnderTest plain(SmallShard(2));
  EXPECT_EQ(plain.Ask(Weighing(Contribution(1, 1, 0, 3), 2)).outcome, Outcome::kInvalid);
}

}  // namespace
}  // namespace sluice
