// SPDX-License-Identifier: Apache-2.0
// Tests compression plans on a shard whose ranks do not wait for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/shard/async_shard.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

// Returns a shard with density 50 % from step 1 on, and 25 % from step 4 of the slowest rank on.
ShardOptions PlannedShard(uint32_t shard = 0) {
  ShardOptions options = ScheduledPlans(job::Mode::kAsync, shard);
  options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
  options.parameters_agree = false;
  return options;
}

protocol::ExchangeRequest PushAsyncPlan(uint32_t rank, uint64_t step, uint32_t bundle,
                                        uint64_t plan) {
  protocol::ExchangeRequest exchange =
      step == 0 && rank > 0 ? SkipOf(rank, step, bundle) : Contribution(rank, step, bundle, 1);
  exchange.rate = 1;
  exchange.plan_id = plan;
  return exchange;
}

// Runs a rank's step with contributions coded by `plan`. Returns the result of bundle 0.
protocol::ExchangeReply Step(ShardUnderTest* shard, uint32_t rank, uint64_t step,
                             uint64_t plan = 1) {
  const protocol::ExchangeReply answer = shard->Ask(PushAsyncPlan(rank, step, 0, plan));
  shard->Send(PushAsyncPlan(rank, step, 1, plan));
  return answer;
}

std::shared_ptr<protocol::CompressionPlan> PlanOf(uint64_t id) {
  auto plan = std::make_shared<protocol::CompressionPlan>();
  plan->id = id;
  plan->effective_step = 9;
  plan->entries = {
      {.direction = protocol::Direction::kDownlink, .codec = Spec("fp16"), .tensors = {0, 1}}};
  return plan;
}

uint64_t MadeIn(const std::vector<ShardEffect>& effects) {
  for (const ShardEffect& effect : effects) {
    if (const auto* made = std::get_if<PlanMade>(&effect)) return made->plan->id;
  }
  return 0;
}

TEST(AsyncPlans, AreMadeAsTheSlowestMovesOn) {
  ShardUnderTest shard(PlannedShard());
  for (uint32_t rank : {0, 1}) Step(&shard, rank, 0);
  for (uint64_t step = 1; step <= 10; ++step) Step(&shard, 1, step);
  EXPECT_EQ(shard->plan()->id, 1u) << "rank 0 has not finished these steps";
  Step(&shard, 0, 1);
  shard.Send(PushAsyncPlan(0, 2, 0, 1));
  EXPECT_EQ(shard->plan()->id, 1u);
  EXPECT_EQ(MadeIn(shard.Send(PushAsyncPlan(0, 2, 1, 1))), 2u);
  EXPECT_EQ(shard->plan()->id, 2u);
}

TEST(AsyncPlans, AreSaidToWhoCodesByAnother) {
  ShardUnderTest shard(PlannedShard());
  for (uint32_t rank : {0, 1}) Step(&shard, rank, 0);
  EXPECT_EQ(Step(&shard, 0, 1).plan, nullptr);
  Step(&shard, 1, 1);
  Step(&shard, 0, 2);
  EXPECT_EQ(Step(&shard, 1, 2).plan, nullptr) << "bundle 0 was answered before the step was over";
  const protocol::ExchangeReply told = Step(&shard, 0, 3);
  ASSERT_NE(told.plan, nullptr);
  EXPECT_EQ(told.plan->id, 2u);
  EXPECT_EQ(told.record.plan_id, 2u);
  EXPECT_EQ(shard.Ask(PushAsyncPlan(0, 3, 1, 1)).plan, nullptr)
      << "only bundle 0 announces the plan";
  EXPECT_EQ(Step(&shard, 0, 4, 2).plan, nullptr);
  EXPECT_NE(Step(&shard, 1, 3).plan, nullptr);
  EXPECT_NE(Step(&shard, 1, 4).plan, nullptr) << "the plan is announced until rank 1 uses it";
}

const ShardParameters& ReplicaOf(ShardUnderTest* shard) {
  return static_cast<const AsyncShard*>(shard->operator->())->replica();
}

// If the shards run the job's optimizer, a plan's momentum must apply to it. If the workers run it,
// they send parameter changes. The shards must then simply add these changes, whatever momentum the
// plan has.
TEST(AsyncPlans, TheirMomentumIsOfTheJobsOptimizerAlone) {
  float moved[2];
  for (const bool on_shards : {false, true}) {
    ShardOptions options = PlannedShard();
    options.momentum = {.base = 0.9};
    if (on_shards) {
      options.rule->momentum = 0.9;
      options.rule_momentum = 0.9;
    }
    ShardUnderTest shard(options);
    for (uint64_t step = 0; step <= 5; ++step) {
      for (uint32_t rank : {0, 1}) Step(&shard, rank, step, shard->plan()->id);
    }
    ASSERT_EQ(shard->plan()->id, 2u);
    EXPECT_LT(shard->plan()->momentum.value_or(1), 0.89f);
    moved[on_shards] = 1 - ReplicaOf(&shard).parameters(0)[0];
  }
  EXPECT_EQ(moved[false], 10) << "ten contributions of 1 add up to 10";
  EXPECT_GT(moved[true], 11);
}

TEST(AsyncPlans, ComeToTheOtherShardsWithRequests) {
  ShardUnderTest shard(PlannedShard(1));
  for (uint32_t rank : {0, 1}) Step(&shard, rank, 0);
  protocol::ExchangeRequest exchange = PushAsyncPlan(0, 1, 0, 4);
  exchange.plan = PlanOf(4);
  EXPECT_EQ(shard.Ask(exchange).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard->plan()->id, 4u);
  // This request comes from a rank that does not know the newest plan yet.
  exchange = PushAsyncPlan(1, 1, 0, 3);
  exchange.plan = PlanOf(3);
  EXPECT_EQ(shard.Ask(exchange).record.plan_id, 4u);
  EXPECT_EQ(shard->plan()->id, 4u);
  const protocol::ExchangeReply result = shard.Ask(PushAsyncPlan(0, 2, 0, 4));
  ASSERT_FALSE(result.results.empty());
  EXPECT_EQ(result.plan, nullptr) << "only shard 0 announces the plan";
}

TEST(AsyncPlans, NumbersGoOnAfterThoseOfACheckpointThatIsFurther) {
  ShardUnderTest shard(PlannedShard());
  for (uint32_t rank : {0, 1}) Step(&shard, rank, 0);
  const protocol::ExchangeReply told = Step(&shard, 0, 1, 8);
  EXPECT_EQ(told.outcome, protocol::Outcome::kResult);
  ASSERT_NE(told.plan, nullptr);
  EXPECT_EQ(told.plan->id, 1u) << "shard 0's plan takes precedence";
  Step(&shard, 1, 1);
  Step(&shard, 0, 2);
  Step(&shard, 1, 2);
  EXPECT_EQ(shard->plan()->id, 9u);
}

TEST(AsyncPlans, AreInSnapshots) {
  ShardUnderTest before(PlannedShard());
  for (uint32_t rank : {0, 1}) Step(&before, rank, 0);
  before->NameCheckpoint(2);
  std::shared_ptr<const protocol::ShardSnapshot> snapshot;
  for (uint64_t step = 1; snapshot == nullptr && step <= 5; ++step) {
    for (uint32_t bundle : {0, 1}) before.Send(PushAsyncPlan(0, step, bundle, 1));
    before.Send(PushAsyncPlan(1, step, 0, 1));
    for (const ShardEffect& effect : before.Send(PushAsyncPlan(1, step, 1, 1))) {
      if (const auto* taken = std::get_if<WriteSnapshot>(&effect)) snapshot = taken->snapshot;
    }
  }
  ASSERT_NE(snapshot, nullptr);
  ASSERT_EQ(snapshot->plans.size(), 1u);
  EXPECT_EQ(snapshot->plans[0], *before->plan());
  ShardOptions options = PlannedShard();
  options.parameters_agree = true;
  options.first_step = snapshot->step + 1;
  options.restore = snapshot;
  ShardUnderTest shard(options);
  EXPECT_EQ(*shard->plan(), *before->plan());
  options.exchange.control = {};
  EXPECT_THAT(Shard::Create(options).status().message(), HasSubstr("makes plans"));
}

TEST(AsyncPlans, ThatCannotBeAreRefused) {
  ShardUnderTest shard(PlannedShard());
  for (uint32_t rank : {0, 1}) Step(&shard, rank, 0);
  protocol::ExchangeRequest exchange = PushAsyncPlan(0, 1, 0, 3);
  exchange.plan = PlanOf(4);
  EXPECT_THAT(shard.Ask(exchange).message, HasSubstr("it is coded by plan 3"));
  auto plan = PlanOf(3);
  plan->entries[0].tensors = {7};
  exchange.plan = plan;
  EXPECT_THAT(shard.Ask(exchange).message, HasSubstr("plan 3, which is invalid"));
  EXPECT_THAT(shard.Ask(PushAsyncPlan(0, 1, 0, ~uint64_t{0})).message,
              HasSubstr("the newest is 1"));
  exchange = PushAsyncPlan(1, 1, 0, 1);
  exchange.answered = true;
  EXPECT_THAT(shard.Ask(exchange).message, HasSubstr("do not replay steps"));
  ShardOptions options = PlannedShard();
  options.exchange.control = {};
  ShardUnderTest fixed(options);
  EXPECT_THAT(fixed.Ask(PushAsyncPlan(0, 0, 0, 1)).message, HasSubstr("this job makes none"));
}

}  // namespace
}  // namespace sluice::server
