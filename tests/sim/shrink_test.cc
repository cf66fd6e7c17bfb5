// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/shrink.h"

#include <gtest/gtest.h>

#include <optional>

namespace sluice {
namespace {

// Returns the first job, by seed, that reveals the planted bug.
std::optional<SurvivalOptions> FailingJob(SurvivalBug bug, SurvivalOptions (*job)(uint64_t seed)) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SurvivalOptions options = job(seed);
    options.bug = bug;
    if (!RunSurvival(options).violations.empty()) return options;
  }
  return std::nullopt;
}

struct ShrinkCase {
  SurvivalBug bug;
  SurvivalOptions (*job)(uint64_t seed);
};

TEST(ShrinkTest, AShortScriptOfAPlantedBugStillFails) {
  for (const ShrinkCase& of : {ShrinkCase{SurvivalBug::kTermNotPersisted, RandomSurvivalOptions},
                               ShrinkCase{SurvivalBug::kStaleSnapshot, RandomSurvivalOptions},
                               ShrinkCase{SurvivalBug::kLateWorkDropped, RandomQuorumOptions},
                               ShrinkCase{SurvivalBug::kClocksNotRestored, RandomAsyncOptions}}) {
    const std::optional<SurvivalOptions> options = FailingJob(of.bug, of.job);
    ASSERT_TRUE(options.has_value());
    const std::optional<Shrunk> shrunk = Shrink(*options);
    ASSERT_TRUE(shrunk.has_value());
    EXPECT_LE(shrunk->runs, kShrinkRunsMax);
    EXPECT_LE(shrunk->script.faults.size(), 4u) << FormatReplay(shrunk->script);
    EXPECT_LT(shrunk->script.faults.size(), options->faults.size());

    absl::StatusOr<ReplayScript> parsed = ParseReplay(FormatReplay(shrunk->script));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_TRUE(RunReplay(*parsed).violations.empty()) << "scripts do not contain the planted bug";
    parsed->options.bug = of.bug;
    const SurvivalReport report = RunReplay(*parsed);
    ASSERT_FALSE(report.violations.empty());
    EXPECT_EQ(report.violations[0], parsed->shows);
  }
}

TEST(ShrinkTest, AShortScriptOfAJobWithRelaysStillFails) {
  RelaySimOptions options;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    options = RandomRelayOptions(seed);
    options.above.bug = SurvivalBug::kRackBeginsWithItsNewest;
    if (options.faults.size() > 3 && !RunRelays(options).all.violations.empty()) break;
  }
  const std::optional<Shrunk> shrunk = Shrink(options);
  ASSERT_TRUE(shrunk.has_value());
  EXPECT_LE(shrunk->runs, kShrinkRunsMax);
  EXPECT_LE(shrunk->script.faults.size(), 3u) << FormatReplay(shrunk->script);

  absl::StatusOr<ReplayScript> parsed = ParseReplay(FormatReplay(shrunk->script));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_TRUE(RunReplay(*parsed).violations.empty()) << "scripts do not contain the planted bug";
  parsed->options.bug = options.above.bug;
  const SurvivalReport report = RunReplay(*parsed);
  ASSERT_FALSE(report.violations.empty());
  EXPECT_EQ(report.violations[0], parsed->shows);
}

TEST(ShrinkTest, TheNumberOfRunsIsBounded) {
  const std::optional<SurvivalOptions> options =
      FailingJob(SurvivalBug::kStaleSnapshot, RandomSurvivalOptions);
  ASSERT_TRUE(options.has_value());
  const std::optional<Shrunk> shrunk = Shrink(*options, 5);
  ASSERT_TRUE(shrunk.has_value());
  EXPECT_EQ(shrunk->runs, 5u);
}

TEST(ShrinkTest, AJobThatKeepsItsPromisesHasNothingToShrink) {
  EXPECT_FALSE(Shrink(RandomSurvivalOptions(1)).has_value());
}

}  // namespace
}  // namespace sluice
