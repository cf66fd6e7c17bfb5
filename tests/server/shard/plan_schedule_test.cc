// SPDX-License-Identifier: Apache-2.0
#include "server/shard/plan_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/shard/shard_layout.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

// A schedule and the parts of a shard that it changes.
struct PlannedParts {
  explicit PlannedParts(ShardOptions of)
      : options(std::move(of)),
        layout(*PlanShard(options)),
        downlink(layout.downlink, {.sender = compress::Compressor::kShardSender}),
        plans(&options, layout.downlink, &downlink, &layout.replica) {
    Check(plans.Prepare().ok(), "the options are valid");
    plans.Begin(options.first_step);
  }

  // Makes the plans of the steps up to `step`. Returns the effects.
  std::vector<ShardEffect> MakeUpTo(uint64_t step) {
    std::vector<ShardEffect> effects;
    while (made < step) plans.Make(++made, &effects);
    return effects;
  }

  const ShardOptions options;
  ShardLayout layout;
  compress::Compressor downlink;
  PlanSchedule plans;
  uint64_t made = 0;
};

protocol::ExchangeRequest CodedBy(uint64_t plan_id, uint64_t step) {
  protocol::ExchangeRequest exchange = Contribution(0, step, 0, 1);
  exchange.plan_id = plan_id;
  return exchange;
}

TEST(PlanSchedule, AJobWithoutPlansRefusesThem) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync}) {
    ShardOptions options = SmallShard(2);
    options.exchange.mode = mode;
    PlannedParts shard(options);
    EXPECT_FALSE(shard.plans.makes_plans());
    EXPECT_TRUE(shard.MakeUpTo(5).empty());
    EXPECT_EQ(shard.plans.InForce(1), nullptr);
    EXPECT_TRUE(shard.plans.Check(CodedBy(0, 1), {.open_step = 1}).ok());
    protocol::ExchangeRequest exchange = CodedBy(1, 1);
    exchange.plan = std::make_shared<protocol::CompressionPlan>();
    EXPECT_THAT(shard.plans.Check(exchange, {.open_step = 1}).message(), HasSubstr("makes none"));
  }
}

TEST(PlanSchedule, InLockstepAPlanIsAnnouncedTwoStepsBeforeItHolds) {
  PlannedParts shard(ScheduledPlans(job::Mode::kSync));
  EXPECT_EQ(shard.plans.coded_by(), 1u);
  EXPECT_TRUE(shard.MakeUpTo(1).empty());
  const std::vector<ShardEffect> effects = shard.MakeUpTo(2);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<PlanMade>(effects[0]).plan->id, 2u);
  EXPECT_EQ(shard.plans.AnnouncedIn(1, 0, 1), nullptr);
  EXPECT_EQ(shard.plans.AnnouncedIn(2, 1, 1), nullptr) << "only bundle 0 announces the plan";
  EXPECT_EQ(shard.plans.AnnouncedIn(2, 0, 1)->id, 2u);
  EXPECT_EQ(shard.plans.InForce(3)->id, 1u);
  EXPECT_EQ(shard.plans.InForce(4)->id, 2u);
  shard.plans.Begin(3);
  EXPECT_EQ(shard.plans.coded_by(), 1u);
  EXPECT_TRUE(shard.plans.Check(CodedBy(2, 4), {.open_step = 3}).ok());
  EXPECT_THAT(shard.plans.Check(CodedBy(1, 4), {.open_step = 3}).message(),
              HasSubstr("in this step plan 2 holds"));
  shard.plans.Begin(4);
  EXPECT_EQ(shard.plans.coded_by(), 2u);
}

TEST(PlanSchedule, InLockstepTheOtherShardsLearnAPlanBeforeItHolds) {
  PlannedParts first(ScheduledPlans(job::Mode::kSync));
  first.MakeUpTo(2);
  PlannedParts other(ScheduledPlans(job::Mode::kSync, 1));
  EXPECT_FALSE(other.plans.makes_plans());
  protocol::ExchangeRequest exchange = CodedBy(1, 2);
  exchange.plan = first.plans.AnnouncedIn(2, 0, 1);
  EXPECT_THAT(other.plans.Check(exchange, {.open_step = 2}).message(),
              HasSubstr("it begins with step 4"));
  exchange.step = 3;
  ASSERT_TRUE(other.plans.Check(exchange, {.open_step = 3}).ok());
  other.plans.Record(exchange, {.open_step = 3});
  EXPECT_EQ(other.plans.InForce(3)->id, 1u);
  EXPECT_EQ(other.plans.InForce(4)->id, 2u);
  // Shard 0 knows its own plans.
  EXPECT_THAT(PlannedParts(ScheduledPlans(job::Mode::kSync))
                  .plans.Check(exchange, {.open_step = 3})
                  .message(),
              HasSubstr("shard 0 has not made it"));
}

TEST(PlanSchedule, AtTheirOwnPaceRanksUseAPlanAtOnce) {
  ShardOptions options = ScheduledPlans(job::Mode::kAsync);
  options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
  PlannedParts first(options);
  EXPECT_EQ(first.MakeUpTo(2).size(), 1u);
  EXPECT_EQ(first.plans.coded_by(), 2u);
  EXPECT_EQ(first.plans.InForce(1)->id, 2u);
  EXPECT_EQ(first.plans.AnnouncedIn(9, 0, 1)->id, 2u);
  EXPECT_EQ(first.plans.AnnouncedIn(9, 0, 2), nullptr) << "the rank uses it";
  EXPECT_TRUE(first.plans.Check(CodedBy(1, 9), {}).ok());

  options = ScheduledPlans(job::Mode::kAsync, 1);
  options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
  PlannedParts other(options);
  protocol::ExchangeRequest exchange = CodedBy(2, 9);
  exchange.plan = first.plans.InForce(0);
  ASSERT_TRUE(other.plans.Check(exchange, {}).ok());
  other.plans.Record(exchange, {});
  EXPECT_EQ(other.plans.coded_by(), 2u);
}

TEST(PlanSchedule, ARestoredScheduleContinuesWithThePlansOfItsSnapshot) {
  PlannedParts before(ScheduledPlans(job::Mode::kSync));
  before.MakeUpTo(3);
  protocol::ShardSnapshot snapshot;
  snapshot.step = 3;
  snapshot.plans = before.plans.Copies();
  PlannedParts after(ScheduledPlans(job::Mode::kSync));
  ASSERT_TRUE(after.plans.Restore(snapshot).ok());
  EXPECT_EQ(after.plans.coded_by(), 1u);
  EXPECT_EQ(after.plans.InForce(4)->id, 2u);
  snapshot.plans.clear();
  EXPECT_THAT(after.plans.Restore(snapshot).message(), HasSubstr("it has no compression plan"));
}

}  // namespace
}  // namespace sluice::server
