// SPDX-License-Identifier: Apache-2.0
// Whole jobs whose steps close without late ranks: random seeds, named schedules and planted bugs.
#include <gtest/gtest.h>

#include "tests/sim/bug_case.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_failure.h"
#include "tests/sim/survival.h"

namespace sluice {
namespace {

#ifdef SLUICE_SANITIZED
constexpr uint64_t kQuorumSimSeeds = 60;
#else
constexpr uint64_t kQuorumSimSeeds = 1'000;
#endif

TEST(QuorumSurvivalTest, AllWorkIsInOneStepForEverySeed) {
  const uint64_t seeds = SeedCount(kQuorumSimSeeds);
  uint64_t left_out = 0;
  uint64_t saved_pending = 0;
  uint64_t late = 0;
  uint64_t rollbacks = 0;
  uint64_t checkpoints = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds; ++seed) {
    const SurvivalOptions options = RandomQuorumOptions(seed);
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    left_out += report.left_out;
    saved_pending += report.saved_pending;
    late += report.late;
    rollbacks += report.rollbacks;
    checkpoints += report.checkpoints;
  }
  GTEST_LOG_(INFO) << "bundles that closed without some rank " << left_out
                   << ", work in a later step " << late << ", rollbacks " << rollbacks
                   << ", checkpoints " << checkpoints;
  if (seeds < 100) return;
  EXPECT_GT(left_out, 10 * seeds);
  EXPECT_GT(saved_pending, seeds / 4);
  EXPECT_GT(late, 5 * seeds);
  EXPECT_GT(rollbacks, seeds / 2);
  EXPECT_GT(checkpoints, seeds);
}

SurvivalOptions UsualQuorumJob(uint64_t seed) {
  SurvivalOptions options = UsualJob(seed);
  options.ranks = 4;
  options.quorum = 3;
  options.grace_us = 200;
  options.replay_limit = 0;
  return options;
}

TEST(QuorumScheduleTest, ARankAlwaysLate) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SurvivalOptions options = UsualQuorumJob(seed);
    options.late_rank = 2;
    options.steps = 60;
    options.checkpoint_interval = 20;
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    EXPECT_EQ(report.rollbacks, 0u);
    EXPECT_GT(report.late, 5u) << "the late rank must take part";
    EXPECT_GT(report.left_out, 60u) << "no bundle may wait for the late rank";
  }
}

TEST(QuorumScheduleTest, LossesAreRolledBack) {
  for (const std::vector<Fault>& faults : {std::vector<Fault>{Fault::kKillWorker},
                                           {Fault::kKillShard},
                                           {Fault::kKillCoordinator},
                                           {Fault::kPowerCut, Fault::kKillWorker},
                                           {Fault::kDamage, Fault::kKillTwo}}) {
    uint64_t rollbacks = 0;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SurvivalOptions options = UsualQuorumJob(seed);
      options.late_rank = static_cast<uint32_t>(seed % 4);
      options.faults = faults;
      const SurvivalReport report = RunSurvival(options);
      ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
      EXPECT_EQ(report.shards_replayed + report.ranks_reexecuted, 0u);
      rollbacks += report.rollbacks;
    }
    EXPECT_GT(rollbacks, 0u) << ToString(faults[0]);
  }
}

TEST(QuorumScheduleTest, MessagesAreLostAndComeTwice) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SurvivalOptions options = UsualQuorumJob(seed);
    options.late_rank = 1;
    options.lost_share = 0.05;
    options.repeat_share = 0.1;
    options.delay_share = 0.2;
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
  }
}

// With all ranks in the quorum, the job must behave as without a quorum.
TEST(QuorumScheduleTest, AQuorumOfAllLeavesNobodyOut) {
  SurvivalOptions options = UsualQuorumJob(1);
  options.quorum = 4;
  options.late_rank = 1;
  const SurvivalReport report = RunSurvival(options);
  ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
  EXPECT_EQ(report.left_out, 0u);
  options.quorum = 0;
  EXPECT_EQ(report.parameters_hash, RunSurvival(options).parameters_hash);
}

class QuorumBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(QuorumBugTest, IsFound) { ExpectFound(GetParam(), 1000, RandomQuorumOptions); }

INSTANTIATE_TEST_SUITE_P(
    All, QuorumBugTest,
    testing::Values(
        BugCase{SurvivalBug::kLateWorkDropped, "LateWorkDropped", "is in no step"},
        BugCase{SurvivalBug::kLateWorkCountsNow, "LateWorkCountsNow", "has not sent"},
        BugCase{SurvivalBug::kLateAnsweredEarly, "LateAnsweredEarly", "is in no step"},
        BugCase{SurvivalBug::kQuorumNotKnown, "QuorumNotKnown", "out, this worker"},
        BugCase{SurvivalBug::kStaleSnapshot, "StaleSnapshot", "another result"},
        BugCase{SurvivalBug::kSumInArrivalOrder, "SumInArrivalOrder", "another result"},
        BugCase{SurvivalBug::kDividedByWorldSize, "DividedByWorldSize", "another result"},
        BugCase{SurvivalBug::kRetryEncodesAgain, "RetryEncodesAgain", "other bytes"},
        BugCase{SurvivalBug::kResultAppliedTwice, "ResultAppliedTwice", "other parameters"},
        BugCase{SurvivalBug::kDownlinkNotRestored, "DownlinkNotRestored", "another result"},
        BugCase{SurvivalBug::kSlotsNotRestored, "SlotsNotRestored", "another result"}),
    BugName);

}  // namespace
}  // namespace sluice
