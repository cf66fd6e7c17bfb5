// SPDX-License-Identifier: Apache-2.0
// Whole jobs whose compression follows a schedule. Whatever is lost, every step must be coded as
// the schedule says; the reference reads the schedule independently.
#include <gtest/gtest.h>

#include "tests/sim/bug_case.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_failure.h"
#include "tests/sim/survival.h"

namespace sluice {
namespace {

#ifdef SLUICE_SANITIZED
constexpr uint64_t kPlanSimSeeds = 40;
constexpr uint64_t kSeedsOfALoss = 5;
#else
// Number of seeds for each of four kinds of jobs.
constexpr uint64_t kPlanSimSeeds = 250;
constexpr uint64_t kSeedsOfALoss = 50;
#endif

void ExpectRightForEverySeed(SurvivalOptions (*job)(uint64_t seed)) {
  const uint64_t seeds = SeedCount(kPlanSimSeeds);
  SurvivalReport total;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds; ++seed) {
    const SurvivalOptions options = job(seed);
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    total.plans += report.plans;
    total.rollbacks += report.rollbacks;
    total.shards_replayed += report.shards_replayed;
    total.ranks_reexecuted += report.ranks_reexecuted;
  }
  GTEST_LOG_(INFO) << "plans " << total.plans << ", rollbacks " << total.rollbacks
                   << ", shards replayed " << total.shards_replayed << ", ranks executed again "
                   << total.ranks_reexecuted;
  if (seeds < 100) return;
  EXPECT_GT(total.plans, 3 * seeds);
  EXPECT_GT(total.rollbacks, seeds / 10);
  EXPECT_GT(total.shards_replayed, seeds / 10);
  EXPECT_GT(total.ranks_reexecuted, seeds / 10);
}

TEST(PlanSurvivalTest, EveryStepIsCodedAsTheScheduleSaysForEverySeed) {
  ExpectRightForEverySeed(RandomPlanOptions);
}

TEST(PlanSurvivalTest, NobodyCodesByOtherPlansThanOthersForEverySeed) {
  ExpectRightForEverySeed(RandomMeasuredOptions);
}

// With a quorum or an elastic job, some steps close without some ranks. Replicas must still be
// equal, and only work of removed workers may be lost.
template <typename Job>
void ExpectRightWithSchedule(const Job& job) {
  const uint64_t seeds = SeedCount(kPlanSimSeeds);
  SurvivalReport total;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds; ++seed) {
    const SurvivalOptions options = WithScheduleOf(seed, job(seed));
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    total.plans += report.plans;
    total.rollbacks += report.rollbacks;
    total.late_joiners += report.late_joiners;
    total.left_out += report.left_out;
  }
  GTEST_LOG_(INFO) << "plans " << total.plans << ", rollbacks " << total.rollbacks << ", newcomers "
                   << total.late_joiners << ", left out " << total.left_out;
  if (seeds < 100) return;
  EXPECT_GT(total.plans, 3 * seeds);
  EXPECT_GT(total.rollbacks, seeds / 10);
  EXPECT_GT(total.late_joiners + total.left_out, seeds);
}

TEST(PlanSurvivalTest, WithAQuorumForEverySeed) { ExpectRightWithSchedule(RandomQuorumOptions); }

TEST(PlanSurvivalTest, WhereWorkersComeAndGoForEverySeed) {
  ExpectRightWithSchedule([](uint64_t seed) {
    SurvivalOptions options = RandomElasticOptions(seed);
    options.steps = std::min<uint64_t>(options.steps, 60);
    return options;
  });
}

// The schedule has a plan for nearly every second step, so that each loss meets a plan in flight.
SurvivalOptions BusySchedule(uint64_t seed, Fault fault) {
  SurvivalOptions options = UsualJob(seed);
  options.steps = 24;
  options.checkpoint_interval = 3;
  options.compression.uplink = *compress::ParseCodecSpec("topk:10%+int4");
  options.compression.downlink = *compress::ParseCodecSpec("topk:30%+int4");
  options.compression.min_elements = 0;
  options.control = {
      .policy = job::PolicyKind::kSchedule,
      .schedule = {
          .kind = job::ScheduleKind::kCyclic, .start = 0.5, .end = 0.05, .steps = 8, .stages = 2}};
  options.faults = {fault};
  return options;
}

TEST(PlanSurvivalTest, LossesEndWithTheBitsOfTheUndisturbedRun) {
  for (const Fault fault : {Fault::kKillWorker, Fault::kKillShard, Fault::kKillCoordinator,
                            Fault::kKillWorkerAndShard, Fault::kPowerCut}) {
    uint64_t struck = 0;
    for (uint64_t seed = 1; seed <= kSeedsOfALoss; ++seed) {
      SurvivalOptions options = BusySchedule(seed, fault);
      const SurvivalReport disturbed = RunSurvival(options);
      ASSERT_TRUE(disturbed.violations.empty()) << Failure(options, disturbed);
      for (const auto& [found, count] : disturbed.faults) struck += found == fault ? count : 0;
      options.faults.clear();
      const SurvivalReport undisturbed = RunSurvival(options);
      EXPECT_EQ(undisturbed.plans, 12u);
      ASSERT_EQ(disturbed.parameters_hash, undisturbed.parameters_hash) << Describe(options);
    }
    EXPECT_GT(2 * struck, kSeedsOfALoss) << ToString(fault);
  }
}

TEST(PlanSurvivalTest, ASchedulePlaysARole) {
  SurvivalOptions options = BusySchedule(1, Fault::kBreak);
  const uint32_t scheduled = RunSurvival(options).parameters_hash;
  options.control = {};
  EXPECT_NE(scheduled, RunSurvival(options).parameters_hash);
}

class PlanBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(PlanBugTest, IsFound) { ExpectFound(GetParam(), 500, RandomPlanOptions); }

INSTANTIATE_TEST_SUITE_P(
    All, PlanBugTest,
    testing::Values(BugCase{SurvivalBug::kPlanTakenUpLate, "PlanTakenUpLate", "other bytes"},
                    BugCase{SurvivalBug::kPlanNotPassedOn, "PlanNotPassedOn", "in this step plan"},
                    BugCase{SurvivalBug::kWorkerForgetsPlans, "WorkerForgetsPlans", "other bytes"},
                    BugCase{SurvivalBug::kShardForgetsPlans, "ShardForgetsPlans", "plan"},
                    BugCase{SurvivalBug::kAnnouncedPlanNotKept, "AnnouncedPlanNotKept", "plan"}),
    BugName);

class MeasuredPlanBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(MeasuredPlanBugTest, IsFound) { ExpectFound(GetParam(), 500, RandomMeasuredOptions); }

INSTANTIATE_TEST_SUITE_P(
    All, MeasuredPlanBugTest,
    testing::Values(BugCase{SurvivalBug::kAnnouncedNotRepeated, "AnnouncedNotRepeated", "plan"},
                    BugCase{SurvivalBug::kNoPlanNotRepeated, "NoPlanNotRepeated", "plan"},
                    BugCase{SurvivalBug::kPlanTakenUpLate, "PlanTakenUpLate", "other bytes"},
                    BugCase{SurvivalBug::kPlanNotPassedOn, "PlanNotPassedOn", "without need"},
                    BugCase{SurvivalBug::kWorkerForgetsPlans, "WorkerForgetsPlans", "plan"},
                    BugCase{SurvivalBug::kAnnouncedPlanNotKept, "AnnouncedPlanNotKept", "plan"}),
    BugName);

}  // namespace
}  // namespace sluice
