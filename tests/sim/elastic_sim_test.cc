// SPDX-License-Identifier: Apache-2.0
// Whole elastic jobs: random seeds, named schedules and planted bugs.
#include <gtest/gtest.h>

#include "tests/sim/bug_case.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_failure.h"
#include "tests/sim/survival.h"

namespace sluice {
namespace {

#ifdef SLUICE_SANITIZED
constexpr uint64_t kElasticSimSeeds = 40;
#else
constexpr uint64_t kElasticSimSeeds = 1'000;
#endif

TEST(ElasticSurvivalTest, AllAreEqualAndNothingOfTheirsIsLostForEverySeed) {
  const uint64_t seeds = SeedCount(kElasticSimSeeds);
  uint64_t late_joiners = 0;
  uint64_t members = 0;
  uint64_t rollbacks = 0;
  uint64_t checkpoints = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds; ++seed) {
    const SurvivalOptions options = RandomElasticOptions(seed);
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    late_joiners += report.late_joiners;
    members += report.members;
    rollbacks += report.rollbacks;
    checkpoints += report.checkpoints;
  }
  GTEST_LOG_(INFO) << "newcomers " << late_joiners << ", of which became members " << members
                   << ", rollbacks " << rollbacks << ", checkpoints " << checkpoints;
  if (seeds < 100) return;
  EXPECT_GT(2 * late_joiners, 3 * seeds);
  EXPECT_GT(members, seeds);
  EXPECT_GT(rollbacks, seeds / 4);
  EXPECT_GT(checkpoints, 5 * seeds);
}

// The job loses only workers: two of four leave and come back.
SurvivalOptions UsualElasticJob(uint64_t seed) {
  SurvivalOptions options = UsualJob(seed);
  options.ranks = 4;
  options.elastic = true;
  options.begin = 4;
  options.steps = 150;
  options.checkpoint_interval = 10;
  return options;
}

TEST(ElasticScheduleTest, FourTwoFour) {
  uint64_t late_joiners = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SurvivalOptions options = UsualElasticJob(seed);
    options.faults = {Fault::kAway, Fault::kAway};
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    EXPECT_LE(report.rollbacks, 1u) << "a rollback is needed only before the first checkpoint";
    late_joiners += report.late_joiners;
  }
  EXPECT_GT(late_joiners, 20u);
}

TEST(ElasticScheduleTest, WithoutAnybodyWhoComesOrGoesItIsAsEver) {
  SurvivalOptions options = UsualElasticJob(1);
  const SurvivalReport report = RunSurvival(options);
  ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
  options.elastic = false;
  EXPECT_EQ(report.parameters_hash, RunSurvival(options).parameters_hash);
}

TEST(ElasticScheduleTest, ASeedGoesOneWay) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SurvivalOptions options = RandomElasticOptions(seed);
    EXPECT_EQ(RunSurvival(options).trace_hash, RunSurvival(options).trace_hash);
  }
}

class ElasticBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(ElasticBugTest, IsFound) { ExpectFound(GetParam(), 300, RandomElasticOptions); }

INSTANTIATE_TEST_SUITE_P(
    All, ElasticBugTest,
    testing::Values(
        BugCase{SurvivalBug::kRemovalNotHeard, "RemovalNotHeard", "does not end"},
        BugCase{SurvivalBug::kLateJoinerWorksAtOnce, "LearnerWorksAtOnce", "out, this worker"},
        BugCase{SurvivalBug::kLateJoinerLeavesOutOne, "LearnerLeavesOutOne", "other parameters"},
        BugCase{SurvivalBug::kStepsBehindIgnored, "StepsBehindIgnored", "does not end"},
        BugCase{SurvivalBug::kMemberNotPersisted, "MemberNotPersisted", "before it was on disk"},
        BugCase{SurvivalBug::kOptimizerNotRestored, "OptimizerNotRestored", "other parameters"},
        BugCase{SurvivalBug::kResultAppliedTwice, "ResultAppliedTwice", "other parameters"},
        BugCase{SurvivalBug::kStaleSnapshot, "StaleSnapshot", "another result"},
        BugCase{SurvivalBug::kSumInArrivalOrder, "SumInArrivalOrder", "another result"},
        BugCase{SurvivalBug::kDividedByWorldSize, "DividedByWorldSize", "another result"},
        BugCase{SurvivalBug::kRetryEncodesAgain, "RetryEncodesAgain", "other bytes"}),
    BugName);

}  // namespace
}  // namespace sluice
