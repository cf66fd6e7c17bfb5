// SPDX-License-Identifier: Apache-2.0
// Tests compression plans on a shard: announcements and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kShardPlanRanks = 2;

// Returns a shard with density 50 % from step 1, 25 % from step 4 and 50 % from step 7 on.
ShardOptions PlannedShard(uint32_t shard) {
  ShardOptions options = SmallShard(kShardPlanRanks, "topk:10%");
  options.exchange.compression.uplink = Spec("topk:10%");
  options.exchange.control = {.policy = job::PolicyKind::kSchedule,
                              .schedule = {.kind = job::ScheduleKind::kPiecewise,
                                           .pieces = {{0, 0.5}, {3, 0.25}, {6, 0.5}}}};
  if (shard == 1) {
    options.shard = 1;
    for (protocol::Chunk& chunk : options.layout.chunks) chunk.shard = 1;
    options.layout.bundles.insert(options.layout.bundles.begin(), std::vector<protocol::Bundle>());
  }
  return options;
}

std::shared_ptr<const protocol::CompressionPlan> PlanFrom(uint64_t step, uint64_t id) {
  auto plan = std::make_shared<protocol::CompressionPlan>();
  plan->id = id;
  plan->effective_step = step;
  plan->entries = {
      {.direction = protocol::Direction::kDownlink, .codec = Spec("fp16"), .tensors = {0, 1}}};
  return plan;
}

protocol::ExchangeRequest Planned(uint32_t rank, uint64_t step, uint32_t bundle, uint64_t plan) {
  protocol::ExchangeRequest exchange = Contribution(rank, step, bundle, 1.5f);
  exchange.plan_id = plan;
  return exchange;
}

// Runs a step in which all ranks encode with `plan`. Returns the result of each bundle.
std::vector<protocol::ExchangeReply> RunStep(
    ShardUnderTest* shard, uint64_t step, uint64_t plan,
    const std::shared_ptr<const protocol::CompressionPlan>& told = nullptr) {
  std::vector<protocol::ExchangeReply> results;
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    for (uint32_t rank = 0; rank < kShardPlanRanks; ++rank) {
      protocol::ExchangeRequest exchange = Planned(rank, step, bundle, plan);
      if (bundle == 0) exchange.plan = told;
      for (const ShardEffect& effect : shard->Send(std::move(exchange))) {
        const auto* reply = std::get_if<SendReply>(&effect);
        if (reply == nullptr || reply->stream != 1) continue;
        if (reply->answer->outcome == protocol::Outcome::kResult) results.push_back(*reply->answer);
      }
    }
  }
  return results;
}

compress::FormatId FormatOf(const protocol::ExchangeReply& result) {
  return compress::ReadFrameHeader(protocol::FrameBytes(result.results.at(0)))->format;
}

TEST(ShardLayout, AnnouncedWithTheFirstBundleTwoStepsBefore) {
  ShardUnderTest shard(PlannedShard(0));
  const std::vector<uint64_t> plan_of_step = {0, 1, 1, 1, 2, 2, 2, 3};
  for (uint64_t step = 1; step <= 7; ++step) {
    const std::vector<protocol::ExchangeReply> results = RunStep(&shard, step, plan_of_step[step]);
    ASSERT_EQ(results.size(), 2u) << step;
    EXPECT_EQ(results[0].record.plan_id, plan_of_step[step]) << step;
    EXPECT_EQ(results[1].plan, nullptr) << step;
    const bool announces = step == 2 || step == 5;
    ASSERT_EQ(results[0].plan != nullptr, announces) << step;
    if (!announces) continue;
    EXPECT_EQ(results[0].plan->effective_step, step + 2);
    EXPECT_EQ(results[0].plan->id, plan_of_step[step + 2]);
    EXPECT_EQ(results[0].plan->entries.size(), 2u);
    EXPECT_EQ(ToString(results[0].plan->entries[0].codec), step == 2 ? "topk:25%" : "topk:50%");
  }
}

TEST(ShardLayout, SaysWhatItMade) {
  ShardUnderTest shard(PlannedShard(0));
  RunStep(&shard, 1, 1);
  uint64_t made = 0;
  for (uint32_t rank = 0; rank < kShardPlanRanks; ++rank) {
    for (const ShardEffect& effect : shard.Send(Planned(rank, 2, 0, 1))) {
      if (const auto* plan = std::get_if<PlanMade>(&effect)) made = plan->plan->id;
    }
  }
  EXPECT_EQ(made, 2u);
}

TEST(ShardLayout, WithoutControlNothingIsSaid) {
  ShardOptions options = PlannedShard(0);
  options.exchange.control = {};
  ShardUnderTest shard(options);
  for (uint64_t step = 1; step <= 5; ++step) {
    for (const protocol::ExchangeReply& result : RunStep(&shard, step, 0)) {
      EXPECT_EQ(result.plan, nullptr);
      EXPECT_EQ(result.record.plan_id, 0u);
    }
  }
  const protocol::ExchangeReply answer = shard.Ask(Planned(0, 6, 0, 1));
  EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(answer.message, HasSubstr("is coded by plan 1"));
  protocol::ExchangeRequest brings = Planned(0, 6, 0, 0);
  brings.plan = PlanFrom(7, 1);
  EXPECT_THAT(shard.Ask(brings).message, HasSubstr("this job makes none"));
}

TEST(ShardLayout, OthersHearOfItFromWorkersAndCodeByItAtItsStep) {
  ShardUnderTest shard(PlannedShard(1));
  EXPECT_NE(FormatOf(RunStep(&shard, 1, 1)[0]), compress::FormatId::kFp16);
  const std::vector<protocol::ExchangeReply> told = RunStep(&shard, 2, 1, PlanFrom(3, 2));
  EXPECT_EQ(told[0].plan, nullptr);  // Only shard 0 announces the plan.
  EXPECT_NE(FormatOf(told[0]), compress::FormatId::kFp16);
  EXPECT_EQ(FormatOf(RunStep(&shard, 3, 2)[0]), compress::FormatId::kFp16);
}

TEST(ShardLayout, ARequestOfAnotherPlanIsRefused) {
  ShardUnderTest shard(PlannedShard(0));
  const protocol::ExchangeReply answer = shard.Ask(Planned(0, 1, 0, 2));
  EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(answer.message, AllOf(HasSubstr("is coded by plan 2"), HasSubstr("plan 1 holds")));
}

TEST(ShardLayout, PlansThatCannotBeAreRefusedAndChangeNothing) {
  const auto refusal = [](uint32_t shard, std::shared_ptr<const protocol::CompressionPlan> plan) {
    ShardUnderTest under_test(PlannedShard(shard));
    RunStep(&under_test, 1, 1);
    protocol::ExchangeRequest exchange = Planned(0, 2, 0, 1);
    exchange.plan = std::move(plan);
    const protocol::ExchangeReply answer = under_test.Ask(exchange);
    EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid) << answer.message;
    EXPECT_EQ(RunStep(&under_test, 2, 1).size(), 2u);
    return answer.message;
  };
  EXPECT_THAT(refusal(0, PlanFrom(3, 2)), HasSubstr("shard 0 has not made it"));
  EXPECT_THAT(refusal(1, PlanFrom(4, 2)), HasSubstr("it begins with step 4"));
  EXPECT_THAT(refusal(1, PlanFrom(3, 1)), HasSubstr("contradicts plan 1 from step 1"));
  protocol::CompressionPlan plan = *PlanFrom(3, 2);
  plan.entries[0].tensors = {7};
  EXPECT_THAT(refusal(1, std::make_shared<protocol::CompressionPlan>(plan)), HasSubstr("tensor 7"));
  plan.entries[0].tensors = {1, 0};
  EXPECT_THAT(refusal(1, std::make_shared<protocol::CompressionPlan>(plan)),
              HasSubstr("out of order"));
  plan = *PlanFrom(3, 2);
  plan.entries[0].codec = Spec("powersgd:2");
  EXPECT_THAT(refusal(1, std::make_shared<protocol::CompressionPlan>(plan)),
              HasSubstr("no plan can have"));
  plan = *PlanFrom(3, 2);
  plan.entries[0].ranks = {0};
  EXPECT_THAT(refusal(1, std::make_shared<protocol::CompressionPlan>(plan)),
              HasSubstr("same for all"));
  plan = *PlanFrom(3, 2);
  plan.reason.assign(5000, 'x');
  EXPECT_THAT(refusal(1, std::make_shared<protocol::CompressionPlan>(plan)), HasSubstr("5000"));
}

// With a quorum, the rank that would have passed the plan to this shard may have been left out. The
// shard must accept the plan later.
TEST(ShardLayout, WithAQuorumAPlanMayComeLate) {
  ShardOptions options = PlannedShard(1);
  ShardUnderTest all(options);
  EXPECT_THAT(all.Ask(Planned(0, 1, 0, 2)).message, HasSubstr("plan 1 holds"));
  options.exchange.quorum = 1;
  options.exchange.straggler_timeout = absl::ZeroDuration();
  ShardUnderTest shard(options);
  protocol::ExchangeRequest exchange = Planned(0, 1, 0, 2);
  exchange.plan = PlanFrom(2, 2);
  EXPECT_NE(shard.Ask(exchange).outcome, protocol::Outcome::kInvalid);
  shard.Send(Planned(0, 1, 1, 2));
  EXPECT_EQ(shard->open_step(), 2u);
  EXPECT_EQ(shard->plan()->id, 2u);
}

TEST(ShardLayout, ACheckpointOfAnotherControlIsRefused) {
  ShardOptions options = PlannedShard(0);
  auto snapshot = std::make_shared<protocol::ShardSnapshot>();
  snapshot->job_uid = kJob;
  snapshot->step = 4;
  options.restore = snapshot;
  options.first_step = 5;
  EXPECT_THAT(Shard::Create(options).status().message(), HasSubstr("no compression plan"));
  options.exchange.control = {};
  snapshot->plans = {*PlanFrom(3, 2)};
  EXPECT_THAT(Shard::Create(options).status().message(), HasSubstr("this job's does not"));
}

}  // namespace
}  // namespace sluice::server
