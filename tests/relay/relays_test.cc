// SPDX-License-Identifier: Apache-2.0
// Tests the configuration of a job with relays, and a relay's handling of a step.
#include "job/relays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "relay/relay_step.h"

namespace sluice::relay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

job::JobSpec FiveWorkers() {
  job::JobSpec job;
  job.name = "test";
  job.hash = 9;
  job.workers = 5;
  job.shards = 2;
  job.exchange.compression.uplink = *compress::ParseCodecSpec("topk:1%+int4");
  job.exchange.compression.downlink = *compress::ParseCodecSpec("fp16");
  job.exchange.compression.overrides.emplace_back().tensors = "*";
  job.relays.workers = {3, 2};
  job.relays.uplink = *compress::ParseCodecSpec("int8");
  return job;
}

TEST(Relays, RanksAreDealtOutInOrder) {
  const job::JobSpec job = FiveWorkers();
  const auto place = [&](uint32_t rank) {
    const job::RackPlace at = job::FindRackPlace(job, rank);
    EXPECT_EQ(job::FirstRankOf(job, at.relay) + at.rank, rank);
    return std::pair(at.relay, at.rank);
  };
  EXPECT_EQ(place(0), std::pair(0u, 0u));
  EXPECT_EQ(place(2), std::pair(0u, 2u));
  EXPECT_EQ(place(3), std::pair(1u, 0u));
  EXPECT_EQ(place(4), std::pair(1u, 1u));
}

TEST(Relays, TheJobAboveHasThemForWorkers) {
  const job::JobSpec above = job::JobOfServers(FiveWorkers());
  EXPECT_EQ(above.workers, 2u);
  EXPECT_THAT(above.part.weights, ElementsAre(3, 2));
  EXPECT_EQ(above.part.rack_of, 0u);
  EXPECT_FALSE(above.relays.enabled());
  EXPECT_EQ(ToString(above.exchange.compression.uplink),
            ToString(FiveWorkers().exchange.compression.uplink));
}

TEST(Relays, AJobWithoutThemIsTheServers) {
  job::JobSpec job = FiveWorkers();
  job.relays = {};
  EXPECT_EQ(job::JobOfServers(job).workers, 5u);
  EXPECT_THAT(job::JobOfServers(job).part.weights, IsEmpty());
}

TEST(Relays, ARackIsAJobOfItsOwn) {
  job::JobSpec job = FiveWorkers();
  job.checkpoint.dir = "kept";
  const job::JobSpec rack = job::JobOfRack(job, 1);
  EXPECT_EQ(rack.workers, 2u);
  EXPECT_EQ(rack.part.rack_of, 5u);
  EXPECT_EQ(rack.shards, 2u);
  EXPECT_EQ(ToString(rack.exchange.compression.uplink), ToString(job.relays.uplink));
  EXPECT_EQ(rack.exchange.compression.downlink.codec, compress::CodecId::kNone);
  EXPECT_THAT(rack.exchange.compression.overrides, IsEmpty());
  EXPECT_EQ(rack.exchange.compression.layout, job.exchange.compression.layout);
  EXPECT_EQ(rack.checkpoint.dir, "kept/rack-1");
  EXPECT_EQ(rack.checkpoint.replay_limit, 0u);
  EXPECT_NE(rack.hash, job.hash);
  EXPECT_NE(rack.hash, job::JobOfRack(job, 0).hash);
}

TEST(Relays, ARackWorksInLockstepEvenIfTheRelaysDoNot) {
  job::JobSpec job = FiveWorkers();
  job.exchange.mode = job::Mode::kSsp;
  job.exchange.staleness = 3;
  job.exchange.control.policy = job::PolicyKind::kAuto;
  // The workers send weight changes, and receive parameters.
  job.optimizer.location = job::UpdateLocation::kWorkers;
  const job::JobSpec rack = job::JobOfRack(job, 1);
  EXPECT_EQ(rack.exchange.mode, job::Mode::kSync);
  EXPECT_EQ(rack.exchange.staleness, 0u);
  EXPECT_FALSE(rack.exchange.control.makes_plans());
  EXPECT_TRUE(job::ShardOptimizer(rack).has_value());
  EXPECT_EQ(job::JobOfServers(job).exchange.mode, job::Mode::kSsp);
  EXPECT_TRUE(job::JobOfServers(job).exchange.control.makes_plans());
}

TEST(Relays, ARackKnowsWhatTheFirstPlanDependsOn) {
  job::JobSpec job = FiveWorkers();
  EXPECT_FALSE(job::JobOfRack(job, 1).part.parent_plans.has_value());
  job.exchange.control.policy = job::PolicyKind::kAuto;
  const job::JobSpec rack = job::JobOfRack(job, 1);
  ASSERT_TRUE(rack.part.parent_plans.has_value());
  EXPECT_EQ(rack.part.parent_plans->relays, 2u);
  EXPECT_EQ(ToString(rack.part.parent_plans->compression.uplink),
            ToString(job.exchange.compression.uplink));
}

// A layout for two shards. Tensor 0 has a chunk on each shard; tensor 1 is a buffer.
struct TwoShards {
  protocol::TensorTable table = {
      {.name = "w", .shape = {5}, .strides = {}, .dtype = protocol::DType::kFloat32},
      {.name = "m",
       .shape = {2},
       .strides = {},
       .dtype = protocol::DType::kFloat32,
       .role = protocol::TensorRole::kBuffer}};
  protocol::Layout layout = {
      .chunks = {{.tensor = 0, .offset = 0, .count = 3, .shard = 0, .bundle = 0},
                 {.tensor = 0, .offset = 3, .count = 2, .shard = 1, .bundle = 0},
                 {.tensor = 1, .offset = 0, .count = 2, .shard = 1, .bundle = 1}},
      .bundles = {
          {{.chunks = {0}, .elements = 3}},
          {{.chunks = {1}, .elements = 2}, {.chunks = {2}, .elements = 2, .buffers = true}}}};
};

server::BundleSum SumOf(uint64_t step, uint32_t bundle, uint32_t n, std::vector<float> sum) {
  return {.term = 0, .step = step, .bundle = bundle, .n = n, .sum = std::move(sum)};
}

TEST(RelayStep, ATensorGoesUpOnceAllItsChunksAreThere) {
  const TwoShards job;
  RelayStep step(job.table, job.layout, 4, true);
  EXPECT_EQ(step.step(), 4u);
  EXPECT_THAT(step.Take(1, SumOf(4, 0, 2, {4, 5})), IsEmpty());
  EXPECT_THAT(step.Take(0, SumOf(4, 0, 1, {1, 2, 3})), ElementsAre(0));
  EXPECT_THAT(step.values(0), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_FALSE(step.complete());
  EXPECT_THAT(step.Take(1, SumOf(4, 1, 0, {})), ElementsAre(1));
  EXPECT_TRUE(step.complete());
  EXPECT_TRUE(step.is_buffer(1));
}

TEST(RelayStep, WhatNobodyContributedToIsZeroAndOldSumsAreForgotten) {
  const TwoShards job;
  RelayStep step(job.table, job.layout, 1, true);
  step.Take(1, SumOf(1, 0, 2, {4, 5}));
  step.Take(0, SumOf(1, 0, 1, {1, 2, 3}));
  step.Take(1, SumOf(1, 1, 0, {}));
  step.Next();
  EXPECT_EQ(step.step(), 2u);
  EXPECT_FALSE(step.complete());
  step.Take(1, SumOf(2, 0, 0, {}));
  step.Take(0, SumOf(2, 0, 1, {1, 2, 3}));
  EXPECT_THAT(step.values(0), ElementsAre(1, 2, 3, 0, 0));
}

// A result of the parent job may contain other racks' updates even if this rack skips.
TEST(RelayStep, PublishesTheKeptParameters) {
  const TwoShards job;
  RelayStep step(job.table, job.layout, 1, false, /*keeps_parameters=*/true);
  step.Take(0, SumOf(0, 0, 1, {1, 2, 3}));
  step.Take(1, SumOf(0, 0, 1, {4, 5}));
  step.Take(1, SumOf(0, 1, 1, {6, 7}));
  step.KeepParameters();
  const auto one = [](uint32_t) { return 1u; };
  EXPECT_THAT(step.Publications(1, one, {})[1].mean, ElementsAre(6, 7));  // Buffers are in step 0.
  step.Next();
  step.Take(0, SumOf(1, 0, 0, {}));
  step.Take(1, SumOf(1, 0, 2, {8, 8}));
  step.Take(1, SumOf(1, 1, 2, {9, 9}));
  EXPECT_THAT(step.values(0), ElementsAre(0, 0, 0, 8, 8));  // The sums go to the parent job.
  step.result(0)[0] = 10;
  const auto none = [](uint32_t) { return 0u; };
  const auto plan = std::make_shared<const protocol::CompressionPlan>();
  const auto first = step.Publications(0, none, {.plan = plan});
  EXPECT_TRUE(first[0].exact);
  EXPECT_EQ(first[0].n, 1u);
  EXPECT_EQ(first[0].plan, plan);
  EXPECT_THAT(first[0].mean, ElementsAre(10, 2, 3));
  const auto second = step.Publications(1, none, {.plan = plan});
  EXPECT_THAT(second[0].mean, ElementsAre(4, 5));
  EXPECT_EQ(second[0].plan, nullptr);  // Only shard 0 announces plans.
  EXPECT_FALSE(second[1].exact);       // Every worker keeps its own buffers.
  EXPECT_EQ(second[1].n, 0u);
}

TEST(RelayStep, PublishesWhatTheMeansAreAndNamesCheckpointsThatAreNear) {
  const TwoShards job;
  RelayStep step(job.table, job.layout, 7, true);
  const absl::Span<float> mean = step.values(0);
  for (size_t i = 0; i < mean.size(); ++i) mean[i] = static_cast<float>(i);
  const auto contributions = [](uint32_t bundle) { return bundle == 0 ? 3u : 0u; };
  for (const auto& [named, told] : {std::pair(0, 0), {7, 0}, {8, 8}, {9, 9}, {10, 0}}) {
    const auto publications =
        step.Publications(1, contributions, {.checkpoint_step = static_cast<uint64_t>(named)});
    ASSERT_EQ(publications.size(), 2u);
    EXPECT_EQ(publications[0].checkpoint_step, static_cast<uint64_t>(told)) << named;
    EXPECT_EQ(publications[0].n, 3u);
    EXPECT_THAT(publications[0].mean, ElementsAre(3, 4));
    EXPECT_EQ(publications[1].n, 0u);
    EXPECT_THAT(publications[1].mean, IsEmpty());
  }
}

TEST(RelayStep, StepZeroComesBeforeTheFirst) {
  const TwoShards job;
  RelayStep step(job.table, job.layout, 1, false);
  EXPECT_EQ(step.step(), 0u);
  step.Next();
  EXPECT_EQ(step.step(), 1u);
}

TEST(RelayProgress, IsTheRacksAsAWhole) {
  server::JobStatus rack;
  rack.members.resize(3);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    server::MemberStatus& member = rack.members[rank];
    member.joined = true;
    member.progress.step = 5 - rank;
    member.progress.total_steps = 9;
    member.progress.loss = 1 + 2 * rank;
  }
  rack.members[0].progress.samples_per_second = 10;
  rack.members[1].progress.samples_per_second = 20;
  rack.members[1].progress.validation_metric = 0.5;
  const worker::Progress progress = ProgressOf(rack);  // The third member has not reported.
  EXPECT_EQ(progress.step, 4u);
  EXPECT_EQ(progress.total_steps, 9u);
  EXPECT_EQ(progress.loss, 2);
  EXPECT_EQ(progress.samples_per_second, 30);
  EXPECT_EQ(progress.validation_metric, 0.5);
}

}  // namespace
}  // namespace sluice::relay
