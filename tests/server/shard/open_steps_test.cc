// SPDX-License-Identifier: Apache-2.0
#include "server/shard/open_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;

// The open steps of a small shard with two ranks, whose first step is 5.
class OpenStepsTest : public testing::Test {
 protected:
  OpenStepsTest() : options_(SmallShard(2)), layout_(*PlanShard(options_)) {
    options_.first_step = 5;
  }

  ShardOptions options_;
  const ShardLayout layout_;
  ClosingRule rule_{&options_, {false, false}};
};

TEST_F(OpenStepsTest, AStepOpensOnceTheBundlesOfTheOneBeforeAreClosed) {
  OpenSteps steps(&options_, &layout_.bundles, 0, 100);
  EXPECT_EQ(steps.step(), 0u);
  EXPECT_EQ(steps.next_step(), 5u);
  EXPECT_EQ(steps.Find(0, 1), nullptr);
  OpenBundle* const first = steps.FindOrOpen(0, 1, rule_);
  EXPECT_EQ(steps.FindOrOpen(0, 1, rule_), first);
  OpenBundle* const ahead = steps.FindOrOpen(5, 1, rule_);
  EXPECT_NE(ahead, first);
  EXPECT_EQ(steps.Close(1).get(), first);
  EXPECT_EQ(steps.Find(0, 1), nullptr);
  EXPECT_TRUE(steps.IsClosed(0, 1));
  EXPECT_FALSE(steps.IsClosed(0, 0));
  EXPECT_FALSE(steps.IsClosed(5, 1));
  EXPECT_EQ(steps.LowestOpen(), 0u);
  EXPECT_FALSE(steps.AllClosed());
  steps.FindOrOpen(0, 0, rule_);
  steps.Close(0);
  ASSERT_TRUE(steps.AllClosed());
  steps.Advance(rule_);
  EXPECT_EQ(steps.step(), 5u);
  EXPECT_TRUE(steps.IsClosed(0, 0));
  EXPECT_FALSE(steps.AllClosed());
  EXPECT_EQ(steps.Find(5, 1), ahead);
  EXPECT_EQ(steps.Find(6, 1), nullptr);
}

TEST_F(OpenStepsTest, ABundleThatWasHandedOverStaysOpen) {
  OpenSteps steps(&options_, &layout_.bundles, 5, 100);
  steps.FindOrOpen(5, 0, rule_);
  steps.FindOrOpen(5, 1, rule_);
  steps.HandOver(0);
  EXPECT_TRUE(steps.IsHandedOver(0));
  EXPECT_FALSE(steps.IsHandedOver(1));
  EXPECT_FALSE(steps.IsClosed(5, 0));
  steps.Close(0);
  steps.Close(1);
  steps.Advance(rule_);
  EXPECT_FALSE(steps.IsHandedOver(0));
}

TEST_F(OpenStepsTest, BundlesOfBothStepsWaitForTheMembers) {
  options_.exchange.membership = job::Membership::kElastic;
  options_.incarnations[1] = 0;
  ClosingRule rule(&options_, {false, false});
  OpenSteps steps(&options_, &layout_.bundles, 5, 100);
  const OpenBundle* const now = steps.FindOrOpen(5, 0, rule);
  const OpenBundle* const ahead = steps.FindOrOpen(6, 0, rule);
  EXPECT_THAT(now->MissingRanks(), ElementsAre(0));
  rule.Join(0, 1, 6);
  steps.AwaitMembers(0, rule);
  EXPECT_THAT(now->MissingRanks(), ElementsAre(0));
  EXPECT_THAT(ahead->MissingRanks(), ElementsAre(0, 1));
}

TEST_F(OpenStepsTest, ForgetsWhatWasUnansweredInBothSteps) {
  OpenSteps steps(&options_, &layout_.bundles, 5, 100);
  for (const uint64_t step : {5u, 6u}) {
    OpenBundle* const open = steps.FindOrOpen(step, 0, rule_);
    for (const uint32_t rank : {0u, 1u}) open->SetUnanswered(rank, 9);
  }
  steps.ForgetUnanswered(1);
  for (const uint64_t step : {5u, 6u}) {
    EXPECT_EQ(steps.Find(step, 0)->unanswered(0), 9u);
    EXPECT_EQ(steps.Find(step, 0)->unanswered(1), 0u);
  }
}

}  // namespace
}  // namespace sluice::server
