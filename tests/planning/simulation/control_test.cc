// SPDX-License-Identifier: Apache-2.0
// The real compression control in the simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/measure/model_tables.h"
#include "tests/planning/simulation/job.h"

namespace sluice::planning {
namespace {

using ::testing::HasSubstr;

SimulationSpec Controlled(double bps, const std::string& control,
                          const std::string& codecs = "uplink: fp16, downlink: fp16") {
  SimulationSpec spec = SpecOf(4, 2, "control: " + control, codecs);
  spec.table = bench::ShrinkTable(*bench::ModelTable("resnet50"), 2'000'000);
  spec.cluster.worker = {.up_bps = bps, .down_bps = bps, .latency_s = 1e-3};
  spec.cluster.shard = spec.cluster.worker;
  spec.costs = {};
  spec.compute_s = 0.02;
  spec.steps = 40;
  return spec;
}

TEST(ControlTest, AutoSendsLessOnSlowLinks) {
  const SimulationReport fixed = MustSimulate(Controlled(20e6, "{policy: fixed}"));
  const SimulationReport adapted = MustSimulate(Controlled(20e6, "{policy: auto}"));
  ASSERT_GE(adapted.plans.size(), 2u);
  EXPECT_THAT(adapted.plans[1].reason, HasSubstr("links are known"));
  EXPECT_LT(adapted.steps.back().mean_s, 0.2 * fixed.steps.back().mean_s);
  EXPECT_LT(adapted.bytes_up, fixed.bytes_up);
}

// Each of two racks has two workers and a shard. The workers beside shard 0 have a fast link to it
// and a slow one to shard 1.
TEST(ControlTest, ASlowLinkToAnotherShardLimitsAWorkerBesideShard0) {
  const auto in_racks = [](const std::string& control) {
    SimulationSpec spec = Controlled(10e9, control);
    spec.cluster.racks = 2;
    spec.cluster.rack = {.up_bps = 20e6, .down_bps = 20e6, .latency_s = 1e-3};
    return MustSimulate(spec);
  };
  const SimulationReport fixed = in_racks("{policy: fixed}");
  const SimulationReport adapted = in_racks("{policy: auto}");
  EXPECT_LT(adapted.steps.back().mean_s, 0.2 * fixed.steps.back().mean_s);
}

// The links are fast until their bursts are spent. The policy must get the waiting time of every
// rank, including the last one to finish a step.
TEST(ControlTest, MeasurementsHaveTheWaitOfEveryRank) {
  SimulationSpec spec = Controlled(20e6, "{policy: auto}");
  spec.cluster.worker.burst_bytes = spec.cluster.shard.burst_bytes = 100'000'000;
  const SimulationReport report = MustSimulate(spec);
  for (const PlanEvent& plan : report.plans) {
    const size_t said = plan.reason.rfind(" ms, ");
    if (said == std::string::npos) continue;
    const double before_s = 1e-3 * std::stod(plan.reason.substr(said + 5));
    if (before_s < 1.1 * spec.compute_s) continue;
    EXPECT_GT(before_s, 0.5 * report.steps[plan.step - 5].mean_s) << plan.reason;
    return;
  }
  FAIL() << "no plan was made because steps were slow";
}

// A plan takes effect kPlanDelay steps after it was made, and no step before it changes.
TEST(ControlTest, APlanChangesTheStepThatItNames) {
  const SimulationReport report = MustSimulate(Controlled(20e6, "{policy: auto}"));
  const uint64_t first = report.plans[1].step;
  EXPECT_NEAR(report.steps[first - 2].mean_s, report.steps[1].mean_s, 0.01);
  EXPECT_LT(report.steps[first].mean_s, 0.5 * report.steps[1].mean_s);
}

TEST(ControlTest, ASchedulesPlansAreKnownBefore) {
  const SimulationReport report = MustSimulate(
      Controlled(20e6,
                 "{policy: schedule, schedule: exponential, start: 0.25, end: 0.01, steps: 8, "
                 "stages: 2}",
                 "uplink: \"topk:1%+int4\", downlink: \"topk:1%+int4\""));
  EXPECT_GE(report.plans.size(), 3u);
  EXPECT_LT(report.steps.back().mean_s, report.steps.front().mean_s);
}

TEST(ControlTest, ControlWithoutLockstepIsAnError) {
  SimulationSpec spec = Controlled(20e6, "{policy: auto}");
  spec.job.exchange.mode = job::Mode::kAsync;
  EXPECT_THAT(Simulate(spec).status().message(), HasSubstr("control cannot be simulated"));
}

}  // namespace
}  // namespace sluice::planning
