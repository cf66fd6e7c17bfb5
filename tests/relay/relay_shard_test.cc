// SPDX-License-Identifier: Apache-2.0
// Tests a rack's shard, which forwards sums and closes its bundles with the parent job's results,
// and the parent job's shard, which weights the sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::relay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

server::ShardOptions RackShard(uint32_t ranks) {
  server::ShardOptions options = server::SmallShard(ranks);
  options.forwards_sums = true;
  return options;
}

std::vector<std::shared_ptr<const server::BundleSum>> SumsIn(
    const std::vector<server::ShardEffect>& effects) {
  std::vector<std::shared_ptr<const server::BundleSum>> sums;
  for (const server::ShardEffect& effect : effects) {
    if (const auto* summed = std::get_if<server::BundleSummed>(&effect))
      sums.push_back(summed->sum);
  }
  return sums;
}

TEST(RackShard, HandsOnWhatAllSentAndClosesWithWhatComesBack) {
  server::ShardUnderTest shard(RackShard(2));
  EXPECT_THAT(SumsIn(shard.Send(server::Contribution(0, 1, 0, 1))), IsEmpty());
  const std::vector<server::ShardEffect> effects = shard.Send(server::Contribution(1, 1, 0, 2));
  const auto sums = SumsIn(effects);
  ASSERT_THAT(sums, SizeIs(1));
  EXPECT_EQ(sums[0]->step, 1u);
  EXPECT_EQ(sums[0]->n, 2u);
  EXPECT_THAT(sums[0]->sum, ElementsAre(3, 3));  // The sum is not divided.
  EXPECT_THAT(server::ResultsByStream(effects), IsEmpty());
  const auto results =
      server::ResultsByStream(shard->Publish({.step = 1, .bundle = 0, .n = 5, .mean = {7, -8}}));
  ASSERT_THAT(results, SizeIs(2));
  EXPECT_EQ(results.at(1).record.n, 5u);
  EXPECT_THAT(server::DecodedFrame(results.at(2).results[0], 2), ElementsAre(7, -8));
  EXPECT_EQ(shard->open_step(), 1u);  // Bundle 1 is still open.
}

TEST(RackShard, RepeatsWaitWhileTheSumIsAboveAndOtherBytesAreRefused) {
  server::ShardUnderTest shard(RackShard(1));
  shard.Send(server::Contribution(0, 1, 0, 1));
  EXPECT_EQ(shard.Ask(server::Contribution(0, 1, 0, 1)).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(server::KeysOf(server::Contribution(0, 1, 0, 1))).outcome,
            protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(server::Contribution(0, 1, 0, 2)).outcome, protocol::Outcome::kInvalid);
  shard->Publish({.step = 1, .bundle = 0, .n = 1, .mean = {1, 1}});
  EXPECT_EQ(shard.Ask(server::Contribution(0, 1, 0, 1)).outcome, protocol::Outcome::kResult);
}

// The result arrives only when the parent job has finished the whole step. Before that, the sender
// needs its credit for the rest of the step, so the shard must answer at once.
TEST(RackShard, AnswersAtOnceWhateverMayStayUnanswered) {
  server::ShardOptions options = RackShard(2);
  options.unanswered_bytes = 1 << 20;
  server::ShardUnderTest shard(options);
  EXPECT_EQ(shard.Ask(server::Contribution(0, 1, 0, 1)).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(server::Contribution(0, 1, 1, 1)).outcome, protocol::Outcome::kPending);
}

TEST(RackShard, WhereAllSkipItSaysSoAndTakesTheMeanOfOthers) {
  server::ShardUnderTest shard(RackShard(1));
  const auto sums = SumsIn(shard.Send(server::SkipOf(0, 1, 0)));
  ASSERT_THAT(sums, SizeIs(1));
  EXPECT_EQ(sums[0]->n, 0u);
  EXPECT_THAT(sums[0]->sum, IsEmpty());
  const auto results =
      server::ResultsByStream(shard->Publish({.step = 1, .bundle = 0, .n = 3, .mean = {4, 4}}));
  EXPECT_EQ(results.at(1).record.n, 3u);
  EXPECT_THAT(server::DecodedFrame(results.at(1).results[0], 2), ElementsAre(4, 4));
}

TEST(RackShard, WhereNobodyContributedAboveNothingIsPublished) {
  server::ShardUnderTest shard(RackShard(1));
  shard.Send(server::Contribution(0, 1, 0, 1));
  const auto results =
      server::ResultsByStream(shard->Publish({.step = 1, .bundle = 0, .n = 0, .mean = {}}));
  EXPECT_EQ(results.at(1).record.n, 0u);
  EXPECT_THAT(results.at(1).results, IsEmpty());
  EXPECT_EQ(results.at(1).version, 0u);
}

TEST(RackShard, WhatIsOfAnotherStepOrWasPublishedChangesNothing) {
  server::ShardUnderTest shard(RackShard(1));
  const server::Publication publication{.step = 1, .bundle = 0, .n = 1, .mean = {1, 1}};
  EXPECT_THAT(shard->Publish(publication), IsEmpty());  // No sum was forwarded.
  shard.Send(server::Contribution(0, 1, 0, 1));
  EXPECT_THAT(shard->Publish({.step = 2, .bundle = 0, .n = 1, .mean = {1, 1}}), IsEmpty());
  EXPECT_THAT(shard->Publish({.step = 1, .bundle = 9, .n = 1, .mean = {1, 1}}), IsEmpty());
  EXPECT_THAT(server::ResultsByStream(shard->Publish(publication)), SizeIs(1));
  EXPECT_THAT(shard->Publish(publication), IsEmpty());
}

TEST(RackShard, WhatCameEarlyIsHandedOnWhenItsStepOpens) {
  server::ShardUnderTest shard(RackShard(1));
  shard.Send(server::Contribution(0, 1, 0, 1));
  shard.Send(server::Contribution(0, 1, 1, 1));
  protocol::ExchangeRequest early = server::Contribution(0, 2, 0, 5);
  early.acked_step = 0;
  EXPECT_THAT(SumsIn(shard.Send(early)), IsEmpty());
  shard->Publish({.step = 1, .bundle = 0, .n = 1, .mean = {1, 1}});
  const auto sums = SumsIn(shard->Publish({.step = 1, .bundle = 1, .n = 1, .mean = {1, 1, 1, 1}}));
  ASSERT_THAT(sums, SizeIs(1));
  EXPECT_EQ(sums[0]->step, 2u);
  EXPECT_THAT(sums[0]->sum, ElementsAre(5, 5));
}

TEST(RackShard, ACheckpointIsNamedByWhatIsPublished) {
  server::ShardUnderTest shard(RackShard(1));
  for (uint64_t step = 1; step <= 3; ++step) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      protocol::ExchangeRequest exchange = server::Contribution(0, step, bundle, 1);
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
      EXPECT_EQ(server::ResultsByStream(effects).at(1).checkpoint_step, 3u);
      for (const server::ShardEffect& effect : effects) {
        taken = taken || std::holds_alternative<server::WriteSnapshot>(effect);
      }
    }
    EXPECT_EQ(taken, step == 3);
  }
}

server::ShardOptions RackShardWithPlans() {
  server::ShardOptions options = RackShard(1);
  options.exchange.control.policy = job::PolicyKind::kSchedule;
  options.parent_plan = std::make_shared<const protocol::CompressionPlan>(
      protocol::CompressionPlan{.id = 1, .effective_step = 1});
  return options;
}

// A plan of the parent job that changes the codec of tensor 0.
std::shared_ptr<const protocol::CompressionPlan> ParentPlan(uint64_t id, uint64_t effective_step) {
  return std::make_shared<const protocol::CompressionPlan>(protocol::CompressionPlan{
      .id = id,
      .effective_step = effective_step,
      .entries = {{.codec = *compress::ParseCodecSpec("int8"), .tensors = {0}}},
      .momentum = 0.5f});
}

protocol::ExchangeRequest CodedBy(uint64_t plan, protocol::ExchangeRequest exchange) {
  exchange.plan_id = plan;
  return exchange;
}

TEST(RackShard, AnnouncesThePlansOfTheParentWithoutTheirCodecs) {
  server::ShardUnderTest shard(RackShardWithPlans());
  shard.Send(CodedBy(1, server::Contribution(0, 1, 0, 1)));
  const auto results = server::ResultsByStream(
      shard->Publish({.step = 1, .bundle = 0, .n = 1, .mean = {1, 1}, .plan = ParentPlan(2, 3)}));
  ASSERT_NE(results.at(1).plan, nullptr);
  EXPECT_EQ(results.at(1).plan->id, 2u);
  EXPECT_EQ(results.at(1).plan->effective_step, 3u);
  EXPECT_EQ(results.at(1).plan->momentum, 0.5f);
  EXPECT_THAT(results.at(1).plan->entries, IsEmpty());
  EXPECT_EQ(shard->plan()->id, 1u);
  shard.Send(CodedBy(1, server::Contribution(0, 1, 1, 1)));
  shard->Publish({.step = 1, .bundle = 1, .n = 1, .mean = {1, 1, 1, 1}});
  // A relay that joins again receives announcements again.
  shard.Send(CodedBy(1, server::Contribution(0, 2, 0, 1)));
  const auto repeated = server::ResultsByStream(
      shard->Publish({.step = 2, .bundle = 0, .n = 1, .mean = {1, 1}, .plan = ParentPlan(2, 3)}));
  EXPECT_EQ(repeated.at(1).plan, nullptr);
  shard.Send(CodedBy(1, server::Contribution(0, 2, 1, 1)));
  shard->Publish({.step = 2, .bundle = 1, .n = 1, .mean = {1, 1, 1, 1}});
  EXPECT_EQ(shard->plan()->id, 2u);
}

TEST(RackShard, NeedsTheFirstPlanOfTheParent) {
  server::ShardOptions options = RackShardWithPlans();
  options.parent_plan = nullptr;
  EXPECT_THAT(std::string(server::Shard::Create(options).status().message()),
              HasSubstr("its first plan is unknown"));
}

TEST(RackShard, SaysThatParametersAreNoChange) {
  server::ShardUnderTest shard(RackShard(1));
  shard.Send(server::Contribution(0, 1, 0, 1));
  shard.Send(server::Contribution(0, 1, 1, 1));
  EXPECT_TRUE(server::ResultsByStream(
                  shard->Publish({.step = 1, .bundle = 0, .n = 1, .mean = {7, 8}, .exact = true}))
                  .at(1)
                  .exact);
  // An empty result must not replace parameters.
  EXPECT_FALSE(server::ResultsByStream(
                   shard->Publish({.step = 1, .bundle = 1, .n = 0, .mean = {}, .exact = true}))
                   .at(1)
                   .exact);
}

server::ShardOptions ShardOfRelays() {
  server::ShardOptions options = server::SmallShard(2);
  options.weights = {3, 1};
  return options;
}

protocol::ExchangeRequest Weighing(protocol::ExchangeRequest exchange, uint32_t weight) {
  exchange.weight = weight;
  return exchange;
}

TEST(ShardOfRelays, DividesByTheSumOfWeights) {
  server::ShardUnderTest shard(ShardOfRelays());
  shard.Send(Weighing(server::Contribution(0, 1, 0, 9), 3));  // The sum of three contributions.
  const auto results = server::ResultsByStream(shard.Send(server::Contribution(1, 1, 0, 3)));
  ASSERT_THAT(results, SizeIs(2));
  EXPECT_THAT(server::DecodedFrame(results.at(1).results[0], 2), ElementsAre(3, 3));
  const protocol::ClosingRecord& record = results.at(1).record;
  EXPECT_EQ(record.n, 4u);
  EXPECT_EQ(record.included[0].weight, 3u);
  EXPECT_EQ(record.included[1].weight, 1u);
}

TEST(ShardOfRelays, WhoSkipsAddsNothingToTheDivisor) {
  server::ShardUnderTest shard(ShardOfRelays());
  shard.Send(server::SkipOf(0, 1, 0));
  const auto results = server::ResultsByStream(shard.Send(server::Contribution(1, 1, 0, 3)));
  EXPECT_EQ(results.at(1).record.n, 1u);
  EXPECT_THAT(server::DecodedFrame(results.at(1).results[0], 2), ElementsAre(3, 3));
}

// If the relays do not wait for each other, a contribution is one update by the mean of its rack.
TEST(ShardOfRelays, DividesTheSumOfOneRelay) {
  server::ShardOptions options = ShardOfRelays();
  options.exchange.mode = job::Mode::kAsync;
  options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
  options.parameters_agree = false;
  server::ShardUnderTest shard(options);
  shard.Send(server::Contribution(0, 0, 0, 100));
  const protocol::ExchangeReply answer = shard.Ask(Weighing(server::Push(0, 1, 0, 6, 1), 3));
  EXPECT_THAT(server::DecodedFrame(answer.results.at(0), 2), ElementsAre(-2, -2));
  EXPECT_EQ(answer.record.n, 3u);
  EXPECT_EQ(answer.record.included.at(0).weight, 3u);
}

TEST(ShardOfRelays, MoreThanARackHasIsRefused) {
  server::ShardUnderTest shard(ShardOfRelays());
  for (const uint32_t weight : {0u, 2u}) {
    const protocol::ExchangeReply answer =
        shard.Ask(Weighing(server::Contribution(1, 1, 0, 3), weight));
    EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid);
    EXPECT_THAT(answer.message, HasSubstr("contributions; it may have 1"));
  }
  server::ShardUnderTest plain(server::SmallShard(2));
  EXPECT_EQ(plain.Ask(Weighing(server::Contribution(1, 1, 0, 3), 2)).outcome,
            protocol::Outcome::kInvalid);
}

}  // namespace
}  // namespace sluice::relay
