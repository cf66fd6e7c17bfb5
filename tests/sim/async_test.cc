// Runs several hundred seeds of asynchronous jobs. SLUICE_SIM_SEED=<seed> repeats one seed;
// SLUICE_SIM_SEEDS=<count> changes their number.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/sim/async_job.h"
#include "tests/sim/seeds.h"

namespace sluice {
namespace {

#ifdef SLUICE_SANITIZED
constexpr uint64_t kSeeds = 200;
#else
// Seeds without plans, and as many with plans.
constexpr uint64_t kSeeds = 500;
#endif
constexpr uint64_t kSeedsToFind = 500;

std::string Failure(const AsyncOptions& options, const AsyncReport& report) {
  return absl::StrCat("SLUICE_SIM_SEED=", options.seed, " (", Describe(options), ")\n  ",
                      absl::StrJoin(report.violations, "\n  "));
}

TEST(AsyncSimulation, EverySeedGoesAsItMust) {
  AsyncReport total;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kSeeds); ++seed) {
    const AsyncOptions options = RandomAsyncOptions(seed);
    const AsyncReport report = RunAsyncJob(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    total.updates += report.updates;
    total.publications += report.publications;
    total.exact_results += report.exact_results;
    total.breaks += report.breaks;
    total.repeats += report.repeats;
    total.rollbacks += report.rollbacks;
    total.checkpoints += report.checkpoints;
    total.waits += report.waits;
    total.staleness_max = std::max(total.staleness_max, report.staleness_max);
  }
  const auto saw = [](const char* what, uint64_t count) {
    RecordProperty(what, absl::StrCat(count));
    GTEST_LOG_(INFO) << what << " " << count;
    // The run must cover each event; an event that never happens tests nothing.
    if (SeedCount(kSeeds) == kSeeds) {
      EXPECT_GT(count, 0u) << what;
    }
  };
  saw("updates", total.updates);
  saw("publications", total.publications);
  saw("exact results", total.exact_results);
  saw("broken streams", total.breaks);
  saw("repeats", total.repeats);
  saw("rollbacks", total.rollbacks);
  saw("checkpoints", total.checkpoints);
  saw("waits for the slowest", total.waits);
  saw("staleness at most", total.staleness_max);
}

TEST(AsyncSimulation, PlansHoldForWhoeverHasThemForEverySeed) {
  AsyncReport total;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kSeeds); ++seed) {
    const AsyncOptions options = RandomPlannedAsyncOptions(seed);
    const AsyncReport report = RunAsyncJob(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    total.plans += report.plans;
    total.rollbacks += report.rollbacks;
  }
  GTEST_LOG_(INFO) << "plans " << total.plans << ", rollbacks " << total.rollbacks;
  if (SeedCount(kSeeds) < kSeeds) return;
  EXPECT_GT(total.plans, 3 * kSeeds);
  EXPECT_GT(total.rollbacks, kSeeds / 4);
}

TEST(AsyncSimulation, AllThatIsOwedIsSentOnceGradientsAreNone) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    AsyncOptions options = RandomAsyncOptions(seed);
    options.rule = {.name = "sgd", .lr = 1};
    options.compression.uplink = *compress::ParseCodecSpec("topk:10%");
    options.compression.downlink = *compress::ParseCodecSpec("topk:10%");
    options.nan_share = 0;
    options.skip_share = 0;
    const AsyncReport busy = RunAsyncJob(options);
    options.quiet_steps = 60;
    const AsyncReport report = RunAsyncJob(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    EXPECT_LE(report.owed, busy.owed * 1e-6) << Failure(options, report);
  }
}

// As in a synchronous job, each rank receives about the bytes of one publication per round.
TEST(AsyncSimulation, ARoundCostsEachRankAboutOneFrame) {
  for (const char* downlink : {"fp16", "topk:10%"}) {
    AsyncOptions options;
    options.ranks = 8;
    options.steps = 50;
    options.compression.uplink = *compress::ParseCodecSpec("fp16");
    options.compression.downlink = *compress::ParseCodecSpec(downlink);
    options.compression.layout = {.chunk_elements = 256, .bundle_elements = 256};
    const AsyncReport report = RunAsyncJob(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    const double rounds = static_cast<double>(report.updates) / options.ranks;
    GTEST_LOG_(INFO) << downlink << ": " << report.publications << " publications of "
                     << report.updates << " updates";
    EXPECT_GT(static_cast<double>(report.publications), 0);
    EXPECT_LE(static_cast<double>(report.publications), 2 * 3 * rounds);
  }
}

struct BugCase {
  AsyncBug bug;
  const char* name;
  const char* symptom;  // Text that a violation must contain.
};

class AsyncBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(AsyncBugTest, IsFound) {
  std::string seen;
  for (uint64_t seed = 1; seed <= kSeedsToFind; ++seed) {
    const bool plans =
        GetParam().bug == AsyncBug::kPlanWithheld || GetParam().bug == AsyncBug::kPlanNotPassedOn;
    AsyncOptions options = plans ? RandomPlannedAsyncOptions(seed) : RandomAsyncOptions(seed);
    options.bug = GetParam().bug;
    for (const std::string& violation : RunAsyncJob(options).violations) {
      if (absl::StrContains(violation, GetParam().symptom)) {
        GTEST_LOG_(INFO) << "found by seed " << seed << ": " << violation;
        return;
      }
      seen = violation;
    }
  }
  FAIL() << "not found within " << kSeedsToFind << " seeds; seen: " << seen;
}

INSTANTIATE_TEST_SUITE_P(
    All, AsyncBugTest,
    testing::Values(
        BugCase{AsyncBug::kRepeatCountsAgain, "RepeatCountsAgain", "was counted again"},
        BugCase{AsyncBug::kContributionLost, "ContributionLost", "is ahead of step 5"},
        BugCase{AsyncBug::kPublicationLost, "PublicationLost", "does not hold version"},
        BugCase{AsyncBug::kPublicationsMerged, "PublicationsMerged", "does not hold version"},
        BugCase{AsyncBug::kWaitingForgotten, "WaitingForgotten", "stuck"},
        BugCase{AsyncBug::kBoundTooFar, "BoundTooFar", "too far ahead"},
        BugCase{AsyncBug::kStalenessForgotten, "StalenessForgotten", "with staleness 0"},
        BugCase{AsyncBug::kNameWithheld, "NameWithheld", "lacks rank 1"},
        BugCase{AsyncBug::kClocksNotRestored, "ClocksNotRestored", "was counted again"},
        BugCase{AsyncBug::kPublishedNotRestored, "PublishedNotRestored", "is not version"},
        BugCase{AsyncBug::kPlanWithheld, "PlanWithheld", "was told of plan"},
        BugCase{AsyncBug::kPlanNotPassedOn, "PlanNotPassedOn", "does not know plan"}),
    [](const testing::TestParamInfo<BugCase>& tested) { return tested.param.name; });

}  // namespace
}  // namespace sluice
