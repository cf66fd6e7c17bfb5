// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/job_scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planning/estimate/samples.h"

namespace sluice::planning {
namespace {

using ::testing::HasSubstr;

job::JobSpec Job() {
  job::JobSpec job;
  job.workers = 6;
  job.shards = 2;
  job.exchange.compression.uplink = Spec("topk:1%+int4");
  job.exchange.compression.downlink = Spec("int8");
  return job;
}

Scenario FromJob(const job::JobSpec& job) {
  Scenario scenario;
  EXPECT_TRUE(SetFromJob(job, &scenario).ok());
  return scenario;
}

TEST(JobScenario, TakesProcessesAndCodecs) {
  const Scenario scenario = FromJob(Job());
  EXPECT_EQ(scenario.workers, 6u);
  EXPECT_EQ(scenario.shards, 2u);
  EXPECT_EQ(scenario.up, Spec("topk:1%+int4"));
  EXPECT_EQ(scenario.down, Spec("int8"));
  EXPECT_EQ(scenario.local, LocalSteps{});
  EXPECT_FALSE(scenario.optimizer_on_shards);
  EXPECT_FALSE(scenario.checkpoints);
  EXPECT_FALSE(scenario.relays);
}

TEST(JobScenario, TakesLocalSteps) {
  job::JobSpec job = Job();
  job.exchange.mode = job::Mode::kLocalSgd;
  job.local.steps = 20;
  job.local.fragment_delay = 2;
  job.exchange.compression.layout.fragments = 4;
  job.exchange.quorum = 2;
  const Scenario scenario = FromJob(job);
  EXPECT_EQ(scenario.local, (LocalSteps{.steps = 20, .fragments = 4, .delay = 2}));
  EXPECT_TRUE(scenario.optimizer_on_shards);
  EXPECT_EQ(scenario.optimizer_state_bytes, 4);  // Momentum of the outer optimizer.
  EXPECT_TRUE(scenario.quorum);
}

TEST(JobScenario, TakesRelaysAsSites) {
  job::JobSpec job = Job();
  job.relays.workers = {3, 3};
  job.relays.uplink = Spec("int4");
  const Scenario scenario = FromJob(job);
  EXPECT_EQ(scenario.sites, 2u);
  EXPECT_TRUE(scenario.relays);
  EXPECT_EQ(scenario.relay_up, Spec("int4"));
  job.relays.workers = {2, 4};
  Scenario other;
  EXPECT_THAT(std::string(SetFromJob(job, &other).message()), HasSubstr("racks of equal size"));
}

TEST(JobScenario, TakesTheOptimizerOfTheShards) {
  job::JobSpec job = Job();
  job.optimizer = {.name = "adam", .location = job::UpdateLocation::kShards};
  EXPECT_TRUE(FromJob(job).optimizer_on_shards);
  EXPECT_EQ(FromJob(job).optimizer_state_bytes, 8);
}

TEST(JobScenario, RefusesModesInWhichWorkersDoNotWait) {
  job::JobSpec job = Job();
  job.exchange.mode = job::Mode::kAsync;
  Scenario scenario;
  const absl::Status status = SetFromJob(job, &scenario);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("mode async cannot be estimated"));
}

}  // namespace
}  // namespace sluice::planning
