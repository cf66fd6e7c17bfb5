// SPDX-License-Identifier: Apache-2.0
// Each planted bug must be found within the seeds that continuous integration runs, which shows
// that the simulation can find bugs.
#include <gtest/gtest.h>

#include "tests/sim/bug_case.h"
#include "tests/sim/sim_failure.h"
#include "tests/sim/survival.h"

namespace sluice {
namespace {

constexpr uint64_t kPlantedBugsSeedsToFind = 2000;

class PlantedBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedBugTest, IsFound) {
  ExpectFound(GetParam(), kPlantedBugsSeedsToFind, RandomSurvivalOptions);
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
        BugCase{SurvivalBug::kResidualsNotMerged, "ResidualsNotMerged", "other bytes"},
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
        BugCase{SurvivalBug::kRestoredShardClosesAlone, "RestoredShardClosesAlone",
                "another result"},
        BugCase{SurvivalBug::kReleaseBeforeDurable, "ReleaseBeforeDurable", "without need"},
        BugCase{SurvivalBug::kReplacedWorkerGoesOn, "ReplacedWorkerGoesOn",
                "although it was replaced"},
        BugCase{SurvivalBug::kTwoShardsServe, "TwoShardsServe", "serves after its end"}),
    BugName);

}  // namespace
}  // namespace sluice
