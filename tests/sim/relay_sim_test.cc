// SPDX-License-Identifier: Apache-2.0
// Runs seeds of jobs with relays. SLUICE_SIM_SEED=<seed> repeats one seed; SLUICE_SIM_SEEDS=<count>
// changes their number.
#include "tests/sim/relay_sim.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/sim/bug_case.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_failure.h"

namespace sluice {
namespace {

#ifdef SLUICE_SANITIZED
constexpr uint64_t kRelaySimSeeds = 30;
#else
constexpr uint64_t kRelaySimSeeds = 1'000;
#endif

// Returns all scheduled faults that may strike.
std::vector<RelayStrike> AllRelayStrikes() {
  std::vector<RelayStrike> strikes;
  for (const RelayLevel level : {RelayLevel::kParentJob, RelayLevel::kRack}) {
    for (const Fault fault : kScheduledFaults) {
      if (MayStrike({fault, level})) strikes.push_back({fault, level});
    }
  }
  return strikes;
}

uint64_t CountOf(const RelayStrike& strike, RelaySimReport* report) {
  const bool is_above = strike.level == RelayLevel::kParentJob;
  return (is_above ? report->faults_above : report->faults_in_racks)[strike.fault];
}

TEST(RelaySimTest, EveryStepGoesAsInTheReferenceForEverySeed) {
  const uint64_t seeds = SeedCount(kRelaySimSeeds);
  RelaySimReport total;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds; ++seed) {
    const RelaySimOptions options = RandomRelayOptions(seed);
    const RelaySimReport report = RunRelays(options);
    ASSERT_TRUE(report.all.violations.empty()) << Failure(options, report);
    for (const auto& [fault, count] : report.faults_above) total.faults_above[fault] += count;
    for (const auto& [fault, count] : report.faults_in_racks) {
      total.faults_in_racks[fault] += count;
    }
    total.all.delivered += report.all.delivered;
    total.all.checkpoints += report.all.checkpoints;
    total.all.repeats += report.all.repeats;
    total.all.shards_replayed += report.all.shards_replayed;
    total.rollbacks_above += report.rollbacks_above;
    total.rollbacks_in_racks += report.rollbacks_in_racks;
    total.relays_back += report.relays_back;
  }
  const auto record = [](const std::string& name, uint64_t count) {
    RecordProperty(name, static_cast<int>(count));
    GTEST_LOG_(INFO) << name << " " << count;
  };
  for (const RelayStrike& strike : AllRelayStrikes()) {
    record(ToString(strike), CountOf(strike, &total));
  }
  record("delivered per seed", total.all.delivered / seeds);
  record("checkpoints", total.all.checkpoints);
  record("repeats", total.all.repeats);
  record("shards replayed", total.all.shards_replayed);
  record("rollbacks above", total.rollbacks_above);
  record("rollbacks in racks", total.rollbacks_in_racks);
  record("relays brought back", total.relays_back);
  if (seeds < 100) return;
  // Every kind of fault must have struck often enough.
  for (const RelayStrike& strike : AllRelayStrikes()) {
    EXPECT_GT(40 * CountOf(strike, &total), seeds) << ToString(strike);
  }
  EXPECT_GT(total.all.checkpoints, seeds);
  EXPECT_GT(total.rollbacks_in_racks, seeds / 2);
  EXPECT_GT(5 * total.rollbacks_above, seeds);
  EXPECT_GT(10 * total.relays_back, seeds);
}

TEST(RelaySimTest, OneSeedGivesOneRun) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 10; ++seed) {
    const RelaySimOptions options = RandomRelayOptions(seed);
    const RelaySimReport first = RunRelays(options);
    const RelaySimReport second = RunRelays(options);
    ASSERT_EQ(first.all.trace_hash, second.all.trace_hash) << Describe(options);
    ASSERT_EQ(first.all.parameters_hash, second.all.parameters_hash) << Describe(options);
  }
}

TEST(RelaySimTest, OtherDelaysAndFaultsGiveTheSameParameters) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 10; ++seed) {
    RelaySimOptions options = RandomRelayOptions(seed);
    const RelaySimReport first = RunRelays(options);
    ++options.above.fault_seed;
    options.faults.clear();
    const RelaySimReport second = RunRelays(options);
    EXPECT_NE(first.all.trace_hash, second.all.trace_hash);
    EXPECT_EQ(first.all.parameters_hash, second.all.parameters_hash);
  }
}

// If the relays do not wait for each other, every rack must have its relay's parameters after each
// step. AsyncChecks checks the parent job.
TEST(AsyncRelaySimTest, EveryRackHasTheParametersOfItsRelayForEverySeed) {
  const uint64_t seeds = SeedCount(kRelaySimSeeds);
  RelaySimReport total;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + seeds; ++seed) {
    const RelaySimOptions options = RandomAsyncRelayOptions(seed);
    const RelaySimReport report = RunRelays(options);
    ASSERT_TRUE(report.all.violations.empty()) << Failure(options, report);
    total.all.updates += report.all.updates;
    total.all.checkpoints += report.all.checkpoints;
    total.rollbacks_above += report.rollbacks_above;
  }
  if (seeds < 100) return;
  EXPECT_GT(total.all.updates, seeds);
  EXPECT_GT(total.all.checkpoints, seeds);
  EXPECT_GT(3 * total.rollbacks_above, seeds);
}

TEST(AsyncRelaySimTest, ParametersThatArePublishedAsAChangeAreFound) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RelaySimOptions options = RandomAsyncRelayOptions(seed);
    options.above.bug = SurvivalBug::kParametersAsChange;
    for (const std::string& violation : RunRelays(options).all.violations) {
      if (absl::StrContains(violation, "than its relay")) return;
    }
  }
  FAIL();
}

// The power fails after the parent job and one rack have finished, but not the other rack. The
// workers of the finished rack restart after their relay has found that the job is over. The job
// must still end correctly.
TEST(RelaySimTest, PowerIsCutAsTheJobAboveEnds) {
  RelaySimOptions options = RandomRelayOptions(633);
  options.above.steps = 10;
  options.faults = {{Fault::kPowerCut, RelayLevel::kParentJob}};
  const RelaySimReport report = RunRelays(options);
  EXPECT_EQ(report.faults_above.at(Fault::kPowerCut), 1u);
  EXPECT_TRUE(report.all.violations.empty()) << Failure(options, report);
}

// Each planted bug must be found, as in planted_bugs_test.cc.
class RelayBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(RelayBugTest, IsFound) {
  constexpr uint64_t kSeedsToFind = 200;
  const BugCase& bug = GetParam();
  std::string seen;
  for (uint64_t seed = 1; seed <= kSeedsToFind; ++seed) {
    RelaySimOptions options = RandomRelayOptions(seed);
    options.above.bug = bug.bug;
    for (const std::string& violation : RunRelays(options).all.violations) {
      if (absl::StrContains(violation, bug.symptom)) {
        RecordProperty("seeds", static_cast<int>(seed));
        GTEST_LOG_(INFO) << "found by seed " << seed << ": " << violation;
        return;
      }
      seen = violation;
    }
  }
  FAIL() << "not found within " << kSeedsToFind << " seeds; seen: " << seen;
}

INSTANTIATE_TEST_SUITE_P(
    All, RelayBugTest,
    testing::Values(
        BugCase{SurvivalBug::kWeightForgotten, "WeightForgotten", "other bytes"},
        BugCase{SurvivalBug::kNothingCountsAsOne, "NothingCountsAsOne", "other bytes"},
        BugCase{SurvivalBug::kSumDivided, "SumDivided", "other bytes"},
        BugCase{SurvivalBug::kRelayResidualForgotten, "RelayResidualForgotten", "other bytes"},
        BugCase{SurvivalBug::kRelayKeepsItsSession, "RelayKeepsItsSession", "other bytes"},
        BugCase{SurvivalBug::kResultPublishedTwice, "ResultPublishedTwice", "another result"},
        BugCase{SurvivalBug::kLossAboveNotTold, "LossAboveNotTold", "did not come back"},
        BugCase{SurvivalBug::kRackBeginsWithItsNewest, "RackBeginsWithItsNewest",
                "its relay is at"},
        BugCase{SurvivalBug::kRackNotAsked, "RackNotAsked", "does not end"},
        BugCase{SurvivalBug::kRackNotAwaited, "RackNotAwaited", "is complete, but rack"},
        BugCase{SurvivalBug::kPlanNotToldToRack, "PlanNotToldToRack", "its relay with plan"}),
    BugName);

}  // namespace
}  // namespace sluice
