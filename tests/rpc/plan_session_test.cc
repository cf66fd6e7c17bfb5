// SPDX-License-Identifier: Apache-2.0
// Tests compression that changes while the job runs, with real sessions, servers and folders. After
// any loss, training must end with the parameters of an undisturbed run, bit for bit.
#include <gtest/gtest.h>

#include <optional>

#include "tests/rpc/survival_session.h"

namespace sluice {
namespace {

// In this job, a new plan begins every other step.
class PlanSessionTest : public SurvivalTest {
 protected:
  PlanSessionTest() {
    job_.exchange.control = {.policy = job::PolicyKind::kSchedule,
                             .schedule = {.kind = job::ScheduleKind::kCyclic,
                                          .dense_steps = 4,
                                          .start = 0.5,
                                          .end = 0.02,
                                          .steps = 12,
                                          .stages = 3}};
  }
};

TEST_P(PlanSessionTest, PlansMakeADifference) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Undisturbed(), expected);
  job_.exchange.control = {};
  EXPECT_NE(Undisturbed(), expected);
}

TEST_P(PlanSessionTest, AShardThatIsLost) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] { servers_.Restart(1); }), expected);
  ExpectRepaired();
}

TEST_P(PlanSessionTest, TheOneThatMakesThePlansIsLost) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] { servers_.Restart(0); }), expected);
  ExpectRepaired();
}

TEST_P(PlanSessionTest, AWorkerThatIsLost) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] { lose_worker_ = true; }), expected);
  EXPECT_TRUE(restored_);
  ExpectRepaired();
}

TEST_P(PlanSessionTest, TheJobGoesBack) {
  replay_limit_ = 0;
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] { servers_.Restart(1); }), expected);
  EXPECT_TRUE(restored_);
  EXPECT_GE(rollbacks_, 1u);
}

// The momentum must depend on the schedule's densities, which are the same in both directions.
TEST_P(PlanSessionTest, PlansLowerTheMomentumWhereTheyAreSparse) {
  job_.optimizer = {.name = "sgd", .lr = 0.1, .momentum = 0.9};
  (void)Undisturbed();
  ASSERT_EQ(momenta_.size(), kSteps);
  bool seen_between = false;
  for (const auto& [step, momentum] : momenta_) {
    const std::optional<double> density = job::DensityAt(job_.exchange.control.schedule, step - 1);
    if (!density || *density >= 0.5) {
      EXPECT_EQ(momentum, std::nullopt) << step;
    } else if (*density <= 0.1) {
      EXPECT_EQ(momentum, 0.5f) << step;
    } else {
      EXPECT_TRUE(momentum > 0.5f && momentum < 0.9f) << step;
      seen_between = true;
    }
  }
  EXPECT_TRUE(seen_between);
}

// The optimizer runs on the shards. It must use the momentum of the plan, and restore the momentum
// of its last update.
class PlanOnShardsTest : public PlanSessionTest {
 protected:
  PlanOnShardsTest() {
    job_.optimizer = {
        .name = "sgd", .lr = 0.1, .momentum = 0.9, .location = job::UpdateLocation::kShards};
  }
};

TEST_P(PlanOnShardsTest, MomentumMakesADifference) {
  const Parameters expected = Undisturbed();
  job_.optimizer.delayed_momentum = 0.9;
  EXPECT_NE(Undisturbed(), expected);
}

TEST_P(PlanOnShardsTest, AShardThatIsLost) {
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] { servers_.Restart(1); }), expected);
  ExpectRepaired();
}

TEST_P(PlanOnShardsTest, TheJobGoesBack) {
  replay_limit_ = 0;
  const Parameters expected = Undisturbed();
  EXPECT_EQ(Run([this] { servers_.Restart(0); }), expected);
  EXPECT_TRUE(restored_);
}

INSTANTIATE_TEST_SUITE_P(Schedule, PlanOnShardsTest, ::testing::Values("topk:5%+int4/ef"));
INSTANTIATE_TEST_SUITE_P(Schedule, PlanSessionTest, ::testing::Values("topk:5%+int4/ef"));

}  // namespace
}  // namespace sluice
