// The simulation is only worth something if it finds what is wrong: each planted bug, within the
// seeds that continuous integration runs anyway.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/sim/sim_failure.h"
#include "tests/sim/survival.h"

namespace sluice {
namespace {

constexpr uint64_t kSeedsToFind = 2000;

struct BugCase {
  SurvivalBug bug;
  const char* name;
  const char* symptom;  // What a violation must say.
};

class PlantedBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedBugTest, IsFound) {
  std::string seen;
  for (uint64_t seed = 1; seed <= kSeedsToFind; ++seed) {
    SurvivalOptions options = RandomSurvivalOptions(seed);
    options.bug = GetParam().bug;
    const SurvivalReport report = RunSurvival(options);
    for (const std::string& violation : report.violations) {
      if (absl::StrContains(violation, GetParam().symptom)) {
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
    All, PlantedBugTest,
    testing::Values(
        BugCase{SurvivalBug::kRetryEncodesAgain, "RetryEncodesAgain", "other bytes"},
        BugCase{SurvivalBug::kRepeatCountsAgain, "RepeatCountsAgain", "other bytes"},
        BugCase{SurvivalBug::kResultAppliedTwice, "ResultAppliedTwice", "other parameters"},
        BugCase{SurvivalBug::kSumInArrivalOrder, "SumInArrivalOrder", "another result"},
        BugCase{SurvivalBug::kDividedByWorldSize, "DividedByWorldSize", "another result"},
        BugCase{SurvivalBug::kResidualLostOnSkip, "ResidualLostOnSkip", "other bytes"},
        BugCase{SurvivalBug::kResidualTakenBackTwice, "ResidualTakenBackTwice", "other bytes"},
        BugCase{SurvivalBug::kStaleSnapshot, "StaleSnapshot", "another result"},
        BugCase{SurvivalBug::kDownlinkNotRestored, "DownlinkNotRestored", "another result"},
        BugCase{SurvivalBug::kSurvivorKeepsItsState, "SurvivorKeepsItsState", "another result"},
        BugCase{SurvivalBug::kResidualNotRestored, "ResidualNotRestored", "other bytes"},
        BugCase{SurvivalBug::kOptimizerNotRestored, "OptimizerNotRestored", "other parameters"},
        BugCase{SurvivalBug::kCursorNotRestored, "CursorNotRestored", "other bytes"},
        BugCase{SurvivalBug::kPublishedNotObserved, "PublishedNotObserved", "other bytes"},
        BugCase{SurvivalBug::kSavedBeforeApplied, "SavedBeforeApplied", "other parameters"},
        BugCase{SurvivalBug::kReportedBeforeDurable, "ReportedBeforeDurable", "not there"},
        BugCase{SurvivalBug::kTermNotPersisted, "TermNotPersisted", "before it was on disk"},
        BugCase{SurvivalBug::kRestoresOlderCheckpoint, "RestoresOlderCheckpoint", "is good"},
        BugCase{SurvivalBug::kLeavesWithoutWaiting, "LeavesWithoutWaiting", "its record"},
        BugCase{SurvivalBug::kSlotsNotRestored, "SlotsNotRestored", "another result"},
        BugCase{SurvivalBug::kOwedNotRestored, "OwedNotRestored", "another result"},
        BugCase{SurvivalBug::kUpdatesNotCounted, "UpdatesNotCounted", "another result"},
        BugCase{SurvivalBug::kRateOfTheStepBefore, "RateOfTheStepBefore", "another result"},
        BugCase{SurvivalBug::kUpdateAppliedToMean, "UpdateAppliedToMean", "other parameters"},
        BugCase{SurvivalBug::kMemberNotPersisted, "MemberNotPersisted", "before it was on disk"},
        BugCase{SurvivalBug::kResultsLetGoTooEarly, "ResultsLetGoTooEarly", "without need"},
        BugCase{SurvivalBug::kOpenStepNotReplayed, "OpenStepNotReplayed", "does not end"},
        BugCase{SurvivalBug::kReplacementNotNoticed, "ReplacementNotNoticed", "does not end"},
        BugCase{SurvivalBug::kPredecessorDropped, "PredecessorDropped", "does not end"},
        BugCase{SurvivalBug::kNeedBecomesInvalid, "NeedBecomesInvalid", "failed"},
        BugCase{SurvivalBug::kRestoredShardClosesAlone, "RestoredShardClosesAlone",
                "another result"},
        BugCase{SurvivalBug::kReleaseBeforeDurable, "ReleaseBeforeDurable", "without need"},
        BugCase{SurvivalBug::kTwoShardsServe, "TwoShardsServe", "does not end"}),
    [](const testing::TestParamInfo<BugCase>& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace sluice
