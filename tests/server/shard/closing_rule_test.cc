// SPDX-License-Identifier: Apache-2.0
#include "server/shard/closing_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kWeights = 0;
constexpr uint32_t kBuffers = 1;

absl::Time AtSecond(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// A rule for three ranks and two bundles: one of weights and one of buffers.
class ClosingRuleTest : public testing::Test {
 protected:
  ClosingRuleTest() { options_.incarnations = {100, 101, 102}; }

  ClosingRule Rule() const { return {&options_, {false, true}}; }
  std::unique_ptr<OpenBundle> Bundle() {
    return std::make_unique<OpenBundle>(counts_, aggregators_, 3, options_.exchange.quorum, &pool_);
  }
  static void Arrive(OpenBundle* bundle, uint32_t rank, double seconds) {
    bundle->Admit(rank, 0, 0, {}, AtSecond(seconds));
  }
  static void ArriveWithSlack(OpenBundle* bundle, uint32_t rank, double seconds, double slack) {
    bundle->Admit(rank, 0, 0, {"a frame"}, AtSecond(seconds), 1,
                  {.slack_us = static_cast<uint64_t>(1e6 * slack)});
  }

  ShardOptions options_;
  const std::vector<uint32_t> counts_;
  const std::vector<compress::Aggregator*> aggregators_;
  SumPool pool_{0};
};

TEST_F(ClosingRuleTest, WithoutAQuorumABundleWaitsForAllRanks) {
  ClosingRule rule = Rule();
  const auto bundle = Bundle();
  rule.Advance(AtSecond(1000));
  for (const uint32_t rank : {2u, 0u, 1u}) {
    EXPECT_FALSE(rule.IsDue({.step = 1}, kWeights, *bundle));
    Arrive(bundle.get(), rank, rank);
    rule.NoteQuorum(kWeights, *bundle);
  }
  EXPECT_TRUE(rule.IsDue({.step = 1}, kWeights, *bundle));
  EXPECT_EQ(rule.DueAt({.step = 1}), absl::InfiniteFuture());
}

TEST_F(ClosingRuleTest, AQuorumClosesABundleOnceItsGraceHasPassed) {
  options_.exchange.quorum = 2;
  options_.exchange.straggler_timeout = absl::Seconds(5);
  ClosingRule rule = Rule();
  const auto bundle = Bundle();
  Arrive(bundle.get(), 0, 1);
  rule.NoteQuorum(kWeights, *bundle);
  EXPECT_EQ(rule.DueAt({.step = 1}), absl::InfiniteFuture());
  Arrive(bundle.get(), 2, 3);
  rule.NoteQuorum(kWeights, *bundle);
  EXPECT_EQ(rule.DueAt({.step = 1}), AtSecond(8));
  rule.Advance(AtSecond(7.9));
  EXPECT_FALSE(rule.IsDue({.step = 1}, kWeights, *bundle));
  rule.Advance(AtSecond(8));
  EXPECT_TRUE(rule.IsDue({.step = 1}, kWeights, *bundle));
  rule.Advance(AtSecond(2));  // Time does not go back.
  EXPECT_TRUE(rule.IsDue({.step = 1}, kWeights, *bundle));
  EXPECT_FALSE(rule.IsDue({.step = 1, .may_leave_out = false}, kWeights, *bundle));
  EXPECT_EQ(rule.DueAt({.step = 1, .may_leave_out = false}), absl::InfiniteFuture());
  Arrive(bundle.get(), 1, 9);
  EXPECT_TRUE(rule.IsDue({.step = 1, .may_leave_out = false}, kWeights, *bundle));
}

TEST_F(ClosingRuleTest, GraceEndsWhenTheFirstRankWouldWait) {
  options_.exchange.quorum = 2;
  options_.exchange.straggler_timeout = absl::Seconds(60);
  ClosingRule rule = Rule();
  const auto bundle = Bundle();
  ArriveWithSlack(bundle.get(), 0, /*seconds=*/1, /*slack=*/10);
  ArriveWithSlack(bundle.get(), 1, /*seconds=*/3, /*slack=*/0);  // Unknown.
  rule.NoteQuorum(kWeights, *bundle);
  EXPECT_EQ(rule.DueAt({.step = 1}), AtSecond(11));
  EXPECT_THAT(rule.WithQuorum(), ElementsAre(kWeights));
  rule.Advance(AtSecond(10));
  EXPECT_FALSE(rule.IsDue({.step = 1}, kWeights, *bundle));
  rule.Advance(AtSecond(11));
  EXPECT_TRUE(rule.IsDue({.step = 1}, kWeights, *bundle));
  rule.Forget(kWeights, *bundle);
  EXPECT_EQ(rule.DueAt({.step = 1}), absl::InfiniteFuture());
}

// In a step, workers skip the bundles of all fragments but one, and wait for all bundles.
TEST_F(ClosingRuleTest, ARankThatSkipsNeedsTheResultToo) {
  options_.exchange.quorum = 2;
  options_.exchange.straggler_timeout = absl::Seconds(60);
  ClosingRule rule = Rule();
  const auto bundle = Bundle();
  for (const uint32_t rank : {0u, 1u}) {
    bundle->Admit(rank, 0, 0, /*frames=*/{}, AtSecond(1), 1, {.slack_us = 2'000'000});
  }
  rule.NoteQuorum(kWeights, *bundle);
  EXPECT_EQ(rule.DueAt({.step = 1}), AtSecond(3));
}

TEST_F(ClosingRuleTest, SlackEndsNoQuorumEarlyAndNoTimeoutLate) {
  options_.exchange.quorum = 2;
  options_.exchange.straggler_timeout = absl::Seconds(5);
  ClosingRule rule = Rule();
  const auto early = Bundle();
  ArriveWithSlack(early.get(), 0, /*seconds=*/1, /*slack=*/1);
  ArriveWithSlack(early.get(), 1, /*seconds=*/4, /*slack=*/1e6);
  rule.NoteQuorum(kWeights, *early);
  EXPECT_EQ(rule.DueAt({.step = 1}), AtSecond(4)) << "rank 0 has waited since second 2";
  rule.Forget(kWeights, *early);
  const auto late = Bundle();
  ArriveWithSlack(late.get(), 0, /*seconds=*/1, /*slack=*/100);
  ArriveWithSlack(late.get(), 1, /*seconds=*/4, /*slack=*/1e12);
  rule.NoteQuorum(kWeights, *late);
  EXPECT_EQ(rule.DueAt({.step = 1}), AtSecond(9));
  ArriveWithSlack(late.get(), 2, /*seconds=*/5, /*slack=*/1);
  rule.NoteQuorum(kWeights, *late);
  EXPECT_EQ(rule.DueAt({.step = 1}), AtSecond(6)) << "a later rank needs the result sooner";
}

TEST_F(ClosingRuleTest, ParametersAndFromTimeToTimeBuffersNeedAllRanks) {
  options_.exchange.quorum = 2;
  options_.exchange.buffer_sync_interval = 10;
  ClosingRule rule = Rule();
  const auto bundle = Bundle();
  Arrive(bundle.get(), 1, 1);
  Arrive(bundle.get(), 2, 1);
  rule.NoteQuorum(kBuffers, *bundle);
  rule.Advance(AtSecond(100));
  EXPECT_TRUE(rule.IsDue({.step = 9}, kBuffers, *bundle));
  EXPECT_FALSE(rule.IsDue({.step = 10}, kBuffers, *bundle));
  EXPECT_EQ(rule.DueAt({.step = 10}), absl::InfiniteFuture());
  EXPECT_TRUE(rule.IsDue({.step = 10}, kWeights, *bundle));
  EXPECT_FALSE(rule.IsDue({.step = 0}, kWeights, *bundle));
}

TEST_F(ClosingRuleTest, NamesTheBundlesWithAQuorumInTheOrderInWhichTheyGotIt) {
  options_.exchange.quorum = 1;
  ClosingRule rule = Rule();
  const auto weights = Bundle();
  const auto buffers = Bundle();
  Arrive(weights.get(), 0, 5);
  rule.NoteQuorum(kWeights, *weights);
  Arrive(buffers.get(), 0, 4);
  rule.NoteQuorum(kBuffers, *buffers);
  EXPECT_THAT(rule.WithQuorum(), ElementsAre(kBuffers, kWeights));
  EXPECT_EQ(rule.DueAt({.step = 1}), AtSecond(4));
  rule.Forget(kBuffers, *buffers);
  EXPECT_THAT(rule.WithQuorum(), ElementsAre(kWeights));
}

TEST_F(ClosingRuleTest, AnElasticBundleWaitsForTheMembersOfItsStep) {
  options_.exchange.membership = job::Membership::kElastic;
  options_.incarnations[1] = 0;  // No worker holds rank 1 yet.
  ClosingRule rule = Rule();
  const auto bundle = Bundle();
  rule.AwaitMembers(kWeights, 4, bundle.get());
  EXPECT_THAT(bundle->MissingRanks(), ElementsAre(0, 2));
  rule.Join(kWeights, 1, 4);
  EXPECT_FALSE(rule.IsMember(kWeights, 1, 3));
  EXPECT_TRUE(rule.IsMember(kWeights, 1, 4));
  EXPECT_FALSE(rule.IsMember(kBuffers, 1, 4));
  rule.AwaitMembers(kWeights, 4, bundle.get());
  EXPECT_THAT(bundle->MissingRanks(), ElementsAre(0, 1, 2));
  EXPECT_TRUE(rule.Leave(0));
  rule.AwaitMembers(kWeights, 4, bundle.get());
  Arrive(bundle.get(), 1, 1);
  EXPECT_FALSE(rule.IsDue({.step = 4}, kWeights, *bundle));
  Arrive(bundle.get(), 2, 1);
  EXPECT_TRUE(rule.IsDue({.step = 4}, kWeights, *bundle));
}

TEST_F(ClosingRuleTest, ABundleWithoutMembersStaysOpen) {
  options_.exchange.membership = job::Membership::kElastic;
  ClosingRule rule = Rule();
  const auto bundle = Bundle();
  for (const uint32_t rank : {0u, 1u, 2u}) EXPECT_TRUE(rule.Leave(rank));
  rule.AwaitMembers(kWeights, 1, bundle.get());
  EXPECT_FALSE(rule.IsDue({.step = 1}, kWeights, *bundle));
}

TEST_F(ClosingRuleTest, WithoutElasticMembershipEveryRankIsAMemberOfEveryStep) {
  ClosingRule rule = Rule();
  EXPECT_FALSE(rule.Leave(0));
  EXPECT_TRUE(rule.IsMember(kWeights, 0, 0));
  const auto bundle = Bundle();
  rule.AwaitMembers(kWeights, 1, bundle.get());
  EXPECT_THAT(bundle->MissingRanks(), ElementsAre(0, 1, 2));
}

// In step 0, the parameters come from the lowest rank that was present at the start.
TEST_F(ClosingRuleTest, Step0WaitsForTheRankThatSendsTheParameters) {
  options_.exchange.membership = job::Membership::kElastic;
  options_.incarnations = {0, 101, 102};
  ClosingRule rule = Rule();
  const auto bundle = Bundle();
  rule.AwaitMembers(kWeights, 0, bundle.get());
  rule.Leave(1);
  rule.AwaitMembers(kWeights, 0, bundle.get());
  Arrive(bundle.get(), 2, 1);
  EXPECT_TRUE(bundle->complete());
  EXPECT_FALSE(rule.IsDue({.step = 0}, kWeights, *bundle));
  EXPECT_TRUE(rule.IsDue({.step = 1}, kWeights, *bundle));
}

}  // namespace
}  // namespace sluice::server
