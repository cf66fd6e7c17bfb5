// Compression that changes while the job runs, with real sessions, servers and folders: whatever is
// lost, training ends with the parameters of the run that nothing happened to, bit for bit.
#include <gtest/gtest.h>

#include "tests/rpc/survival_session.h"

namespace sluice {
namespace {

// A plan for every other step.
class PlanSessionTest : public SurvivalTest {
 protected:
  PlanSessionTest() {
    job_.control = {.policy = "schedule",
                    .schedule = {.kind = ScheduleKind::kCyclic,
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
  job_.control = {};
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

INSTANTIATE_TEST_SUITE_P(Schedule, PlanSessionTest, ::testing::Values("topk:5%+int4/ef"));

}  // namespace
}  // namespace sluice
