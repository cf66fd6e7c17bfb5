// SPDX-License-Identifier: Apache-2.0
// Runs several hundred seeds of jobs in modes async and ssp. SLUICE_SIM_SEED=<seed> repeats one
// seed; SLUICE_SIM_SEEDS=<count> changes their number.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/bug_case.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_failure.h"
#include "tests/sim/survival.h"

namespace sluice {
namespace {

#ifdef SLUICE_SANITIZED
constexpr uint64_t kSeeds = 200;
#else
// Seeds without plans, and as many with plans.
constexpr uint64_t kSeeds = 500;
#endif
constexpr uint64_t kSeedsToFind = 500;

TEST(AsyncSimulation, EverySeedGoesAsItMust) {
  SurvivalReport total;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kSeeds); ++seed) {
    const SurvivalOptions options = RandomAsyncOptions(seed);
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    for (const auto& [fault, count] : report.faults) total.faults[fault] += count;
    total.updates += report.updates;
    total.publications += report.publications;
    total.exact_results += report.exact_results;
    total.repeats += report.repeats;
    total.rollbacks += report.rollbacks;
    total.checkpoints += report.checkpoints;
    total.waits += report.waits;
    total.staleness_max = std::max(total.staleness_max, report.staleness_max);
  }
  const auto saw = [](const std::string& what, uint64_t count) {
    RecordProperty(what, absl::StrCat(count));
    GTEST_LOG_(INFO) << what << " " << count;
    // The run must cover each event; an event that never happens tests nothing.
    if (SeedCount(kSeeds) == kSeeds) {
      EXPECT_GT(count, 0u) << what;
    }
  };
  for (const Fault fault : kMessageFaults) saw(ToString(fault), total.faults[fault]);
  for (const Fault fault : kScheduledFaults) {
    if (fault != Fault::kOtherBytes) saw(ToString(fault), total.faults[fault]);
  }
  saw("updates", total.updates);
  saw("publications", total.publications);
  saw("exact results", total.exact_results);
  saw("repeats", total.repeats);
  saw("rollbacks", total.rollbacks);
  saw("checkpoints", total.checkpoints);
  saw("waits for the slowest", total.waits);
  saw("staleness at most", total.staleness_max);
}

TEST(AsyncSimulation, PlansHoldForWhoeverHasThemForEverySeed) {
  SurvivalReport total;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kSeeds); ++seed) {
    const SurvivalOptions options =
        seed % 4 == 0 ? RandomMeasuredAsyncOptions(seed) : RandomPlannedAsyncOptions(seed);
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    total.plans += report.plans;
    total.rollbacks += report.rollbacks;
  }
  GTEST_LOG_(INFO) << "plans " << total.plans << ", rollbacks " << total.rollbacks;
  if (SeedCount(kSeeds) < kSeeds) return;
  EXPECT_GT(total.plans, 3 * kSeeds);
  EXPECT_GT(total.rollbacks, kSeeds / 4);
}

TEST(AsyncSimulation, WorkersComeAndGoForEverySeed) {
  SurvivalReport total;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kSeeds); ++seed) {
    const SurvivalOptions options = RandomElasticAsyncOptions(seed);
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    total.late_joiners += report.late_joiners;
    total.members += report.members;
    total.rollbacks += report.rollbacks;
    total.checkpoints += report.checkpoints;
    total.waits += report.waits;
  }
  GTEST_LOG_(INFO) << "newcomers " << total.late_joiners << ", of which became members "
                   << total.members << ", rollbacks " << total.rollbacks << ", checkpoints "
                   << total.checkpoints << ", waits " << total.waits;
  if (SeedCount(kSeeds) < kSeeds) return;
  EXPECT_GT(total.late_joiners, kSeeds);
  EXPECT_GT(total.members, kSeeds / 2);
  EXPECT_GT(total.rollbacks, kSeeds / 4);
  EXPECT_GT(total.checkpoints, 3 * kSeeds);
  EXPECT_GT(total.waits, kSeeds);
}

TEST(AsyncSimulation, AllThatIsOwedIsSentOnceGradientsAreNone) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SurvivalOptions options = RandomAsyncOptions(seed);
    options.rule = {.name = "sgd", .lr = 1};
    options.compression.uplink = *compress::ParseCodecSpec("topk:10%");
    options.compression.downlink = *compress::ParseCodecSpec("topk:10%");
    options.nan_share = 0;
    options.skip_share = 0;
    const SurvivalReport busy = RunSurvival(options);
    options.quiet_steps = 60;
    options.steps += options.quiet_steps;
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    EXPECT_LE(report.owed, busy.owed * 1e-6) << Failure(options, report);
  }
}

// As in a synchronous job, each rank receives about the bytes of one publication per round.
TEST(AsyncSimulation, ARoundCostsEachRankAboutOneFrame) {
  for (const char* downlink : {"fp16", "topk:10%"}) {
    SurvivalOptions options = UsualJob(1);
    options.mode = job::Mode::kAsync;
    options.rule = {.name = "sgd", .lr = 1};
    options.replay_limit = 0;
    options.ranks = 8;
    options.steps = 50;
    options.skip_share = 0;
    options.compression.uplink = *compress::ParseCodecSpec("fp16");
    options.compression.downlink = *compress::ParseCodecSpec(downlink);
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    ASSERT_EQ(report.rollbacks, 0u);
    const double rounds = static_cast<double>(report.updates) / options.ranks;
    GTEST_LOG_(INFO) << downlink << ": " << report.publications << " publications of "
                     << report.updates << " updates";
    EXPECT_GT(static_cast<double>(report.publications), 0);
    EXPECT_LE(static_cast<double>(report.publications), 3 * rounds);
  }
}

TEST(AsyncSimulation, LossesAreRolledBack) {
  for (const Fault fault : {Fault::kKillWorker, Fault::kKillShard, Fault::kKillCoordinator}) {
    uint64_t rollbacks = 0;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SurvivalOptions options = RandomAsyncOptions(seed);
      options.checkpoint_interval = 3;
      options.faults = {fault};
      const SurvivalReport report = RunSurvival(options);
      ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
      EXPECT_EQ(report.shards_replayed + report.ranks_reexecuted, 0u);
      rollbacks += report.rollbacks;
    }
    EXPECT_GT(rollbacks, 0u) << ToString(fault);
  }
}

TEST(AsyncSimulation, OneSeedGivesOneRun) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 20; ++seed) {
    const SurvivalOptions options = RandomPlannedAsyncOptions(seed);
    const SurvivalReport first = RunSurvival(options);
    const SurvivalReport second = RunSurvival(options);
    ASSERT_EQ(first.trace_hash, second.trace_hash) << Describe(options);
    ASSERT_EQ(first.parameters_hash, second.parameters_hash) << Describe(options);
  }
}

class AsyncBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(AsyncBugTest, IsFound) {
  const SurvivalBug bug = GetParam().bug;
  const bool plans = bug == SurvivalBug::kPlanWithheld || bug == SurvivalBug::kPlanNotPassedOn;
  ExpectFound(GetParam(), kSeedsToFind, plans ? RandomPlannedAsyncOptions : RandomAsyncOptions);
}

INSTANTIATE_TEST_SUITE_P(
    All, AsyncBugTest,
    testing::Values(
        BugCase{SurvivalBug::kRepeatCountsAgain, "RepeatCountsAgain", "was counted again"},
        BugCase{SurvivalBug::kContributionLost, "ContributionLost", "which is another's"},
        BugCase{SurvivalBug::kPublicationLost, "PublicationLost", "does not hold version"},
        BugCase{SurvivalBug::kPublicationsMerged, "PublicationsMerged", "does not hold version"},
        BugCase{SurvivalBug::kWaitingForgotten, "WaitingForgotten", "does not end"},
        BugCase{SurvivalBug::kBoundTooFar, "BoundTooFar", "too far ahead"},
        BugCase{SurvivalBug::kStalenessForgotten, "StalenessForgotten", "with staleness 0"},
        BugCase{SurvivalBug::kNameWithheld, "NameWithheld", "lacks rank 1"},
        BugCase{SurvivalBug::kClocksNotRestored, "ClocksNotRestored", "was counted again"},
        BugCase{SurvivalBug::kPublishedNotRestored, "PublishedNotRestored", "is not version"},
        BugCase{SurvivalBug::kPlanWithheld, "PlanWithheld", "was told of plan"},
        BugCase{SurvivalBug::kPlanNotPassedOn, "PlanNotPassedOn", "does not know plan"}),
    BugName);

class ElasticAsyncBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(ElasticAsyncBugTest, IsFound) {
  ExpectFound(GetParam(), kSeedsToFind, RandomElasticAsyncOptions);
}

INSTANTIATE_TEST_SUITE_P(
    All, ElasticAsyncBugTest,
    testing::Values(BugCase{SurvivalBug::kRemovalNotHeard, "RemovalNotHeard", "does not end"},
                    BugCase{SurvivalBug::kStepsBehindIgnored, "StepsBehindIgnored", "does not end"},
                    BugCase{SurvivalBug::kMemberNotPersisted, "MemberNotPersisted",
                            "before it was on disk"},
                    BugCase{SurvivalBug::kWaitingForgotten, "WaitingForgotten", "does not end"}),
    BugName);

}  // namespace
}  // namespace sluice
