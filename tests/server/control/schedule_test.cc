// SPDX-License-Identifier: Apache-2.0
#include "server/control/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/control/controller.h"

namespace sluice::server {
namespace {

const std::vector<ControlledTensor> kScheduleTensors = {{.elements = 100000},
                                                        {.elements = 64, .compressed = false}};

BaseCoding Base(const char* large) {
  const std::vector<compress::CodecSpec> codecs = {*compress::ParseCodecSpec(large),
                                                   *compress::ParseCodecSpec("fp16")};
  return {.up = codecs, .down = codecs};
}

job::ScheduleSpec Dgc() {
  return {.kind = job::ScheduleKind::kExponential,
          .dense_steps = 5,
          .start = 0.25,
          .end = 0.25 / 256,
          .steps = 40,
          .stages = 4};
}

// Returns the density in each step under the plans that the schedule makes.
std::vector<double> Densities(const job::ScheduleSpec& spec, uint64_t steps, size_t* plans) {
  auto policy = MakeSchedulePolicy(spec, Base("topk:1%+int4"), kScheduleTensors, 2);
  EXPECT_TRUE(policy.ok()) << policy.status();
  Controller controller(*std::move(policy), kScheduleTensors, {});
  std::vector<PolicyDecision> made = {controller.First()};
  std::vector<double> densities;
  for (uint64_t step = 0; step < steps; ++step) {
    const PolicyDecision* plan = &made[0];
    for (const PolicyDecision& later : made) plan = later.effective_step <= step ? &later : plan;
    const compress::CodecSpec& codec = plan->choice.up[1].codecs[0];
    EXPECT_EQ(codec, plan->choice.down.codecs[0]);
    EXPECT_EQ(plan->choice.up[0].codecs[1].codec, compress::CodecId::kFp16);
    densities.push_back(codec.codec == compress::CodecId::kFp16 ? 1 : codec.level);
    StepMeasurements measured;
    measured.step = step;
    if (auto next = controller.Next(measured)) made.push_back(*std::move(next));
  }
  *plans = made.size();
  return densities;
}

TEST(Schedule, DgcWarmUpIsAsDocumentedAtEveryStep) {
  size_t plans = 0;
  const std::vector<double> densities = Densities(Dgc(), 100, &plans);
  for (uint64_t step = 0; step < 100; ++step) {
    double expected = 0.25 / 256;
    if (step < 5) {
      expected = 1;
    } else if (step < 15) {
      expected = 0.25;
    } else if (step < 25) {
      expected = 0.0625;
    } else if (step < 35) {
      expected = 0.015625;
    } else if (step < 45) {
      expected = 0.00390625;
    }
    EXPECT_NEAR(densities[step], expected, 0.005 * expected) << step;
  }
  EXPECT_EQ(plans, 6u);
}

TEST(Schedule, DensitiesBetweenAreShort) {
  EXPECT_EQ(job::DensityAt(Dgc(), 5), 0.25);
  EXPECT_EQ(job::DensityAt(Dgc(), 25), 0.0156);
  EXPECT_EQ(job::DensityAt(Dgc(), 35), 0.00391);
  EXPECT_EQ(job::DensityAt(Dgc(), 45), 0.25 / 256) << "a density from the job file is not rounded";
}

TEST(Schedule, PiecewiseIsAsDocumentedAtEveryStep) {
  const job::ScheduleSpec spec{.kind = job::ScheduleKind::kPiecewise,
                               .pieces = {{0, 0.1}, {2, 0.05}, {30, 0.2}, {33, 0.01}}};
  size_t plans = 0;
  const std::vector<double> densities = Densities(spec, 50, &plans);
  for (uint64_t step = 0; step < 50; ++step) {
    EXPECT_EQ(densities[step], step < 2 ? 0.1 : step < 30 ? 0.05 : step < 33 ? 0.2 : 0.01) << step;
  }
  EXPECT_EQ(plans, 4u);
}

TEST(Schedule, CyclicGoesDownAndUp) {
  const job::ScheduleSpec spec{
      .kind = job::ScheduleKind::kCyclic, .start = 0.16, .end = 0.01, .steps = 16, .stages = 4};
  size_t plans = 0;
  const std::vector<double> densities = Densities(spec, 64, &plans);
  const double period[] = {0.16, 0.08, 0.04, 0.02, 0.01, 0.02, 0.04, 0.08};
  for (uint64_t step = 0; step < 64; ++step) {
    EXPECT_NEAR(densities[step], period[step % 16 / 2], 1e-9) << step;
  }
}

TEST(Schedule, ConstantAfterDenseSteps) {
  size_t plans = 0;
  const std::vector<double> densities = Densities({.dense_steps = 3, .end = 0.02}, 10, &plans);
  for (uint64_t step = 0; step < 10; ++step) {
    EXPECT_EQ(densities[step], step < 3 ? 1 : 0.02) << step;
  }
  EXPECT_EQ(plans, 2u);
}

TEST(Schedule, RefusesWhatNoPlanCanDo) {
  job::ScheduleSpec spec = Dgc();
  spec.dense_steps = 1;
  EXPECT_FALSE(job::ValidateSchedule(spec).ok());
  spec = Dgc();
  spec.stages = 21;
  EXPECT_FALSE(job::ValidateSchedule(spec).ok());
  spec.stages = 0;
  EXPECT_FALSE(job::ValidateSchedule(spec).ok());
  spec = Dgc();
  spec.end = 0;
  EXPECT_FALSE(job::ValidateSchedule(spec).ok());
  spec.end = std::nan("");
  EXPECT_FALSE(job::ValidateSchedule(spec).ok());
  spec = Dgc();
  spec.steps = uint64_t{1} << 60;
  EXPECT_FALSE(job::ValidateSchedule(spec).ok());
  spec = {.kind = job::ScheduleKind::kPiecewise};
  EXPECT_FALSE(job::ValidateSchedule(spec).ok());
  spec.pieces = {{1, 0.5}};
  EXPECT_FALSE(job::ValidateSchedule(spec).ok());
  spec.pieces = {{0, 0.5}, {1, 0.5}};
  EXPECT_FALSE(job::ValidateSchedule(spec).ok());
  spec.pieces = {{0, 0.5}, {2, 1.5}};
  EXPECT_FALSE(job::ValidateSchedule(spec).ok());
  EXPECT_FALSE(MakeSchedulePolicy(Dgc(), Base("int8"), kScheduleTensors, 2).ok());
}

}  // namespace
}  // namespace sluice::server
