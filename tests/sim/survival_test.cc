// Schedules by name first, then seeds by the hundred. To run one again: SLUICE_SIM_SEED=<seed>; for
// more: SLUICE_SIM_SEEDS=<count>.
#include "tests/sim/survival.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/sim/seeds.h"

namespace sluice {
namespace {

// Sanitizers are some ten times as slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 500;
#else
constexpr uint64_t kSeeds = 10'000;
#endif

std::string Failure(const SurvivalOptions& options, const SurvivalReport& report) {
  return absl::StrCat("SLUICE_SIM_SEED=", options.data_seed, " (", Describe(options), ")\n  ",
                      absl::StrJoin(report.violations, "\n  "));
}

// The same job with nothing in its way.
uint32_t UndisturbedHash(SurvivalOptions options) {
  options.faults.clear();
  options.bug = SurvivalBug::kNone;
  const SurvivalReport report = RunSurvival(options);
  EXPECT_TRUE(report.violations.empty()) << Failure(options, report);
  EXPECT_EQ(report.rollbacks, 0);
  return report.parameters_hash;
}

SurvivalReport RunAndCompare(const SurvivalOptions& options) {
  SurvivalReport report = RunSurvival(options);
  if (report.violations.empty() && report.parameters_hash != UndisturbedHash(options)) {
    report.violations.push_back("other parameters than the undisturbed run has");
  }
  return report;
}

SurvivalOptions Usual(uint64_t seed) {
  SurvivalOptions options;
  options.data_seed = seed;
  options.fault_seed = seed;
  options.steps = 30;
  options.compression.uplink = *ParseCodecSpec("topk:5%+int4");
  options.compression.downlink = *ParseCodecSpec("topk:10%");
  options.compression.min_elements = 0;
  options.compression.layout = {.chunk_elements = 256, .bundle_elements = 256};
  return options;
}

struct Schedule {
  const char* name;
  std::vector<Fault> faults;
  bool rolls_back = true;  // In some seed, at least.
};

class ScheduleTest : public testing::TestWithParam<Schedule> {};

TEST_P(ScheduleTest, EndsAsIfNothingHadHappened) {
  uint64_t rollbacks = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SurvivalOptions options = Usual(seed);
    options.faults = GetParam().faults;
    const SurvivalReport report = RunAndCompare(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    rollbacks += report.rollbacks;
  }
  EXPECT_EQ(rollbacks > 0, GetParam().rolls_back);
}

INSTANTIATE_TEST_SUITE_P(
    All, ScheduleTest,
    testing::Values(
        Schedule{"Nothing", {}, false}, Schedule{"WorkerKilled", {Fault::kKillWorker}},
        Schedule{"ShardKilled", {Fault::kKillShard}},
        Schedule{"CoordinatorKilled", {Fault::kKillCoordinator}},
        Schedule{"WorkerAndShardKilledTogether", {Fault::kKillTwo}},
        Schedule{"PowerCutOfEverything", {Fault::kPowerCut}},
        Schedule{"PowerCutTwice", {Fault::kPowerCut, Fault::kPowerCut}},
        Schedule{"NewestSnapshotCorrupt", {Fault::kDamage, Fault::kPowerCut}},
        Schedule{"NewestSnapshotCorruptAndAWorkerKilled", {Fault::kDamage, Fault::kKillWorker}},
        Schedule{"PausedBeyondTheLease", {Fault::kPause, Fault::kPause, Fault::kPause}},
        Schedule{"DiskFullWhenAWorkerDies", {Fault::kDiskFull, Fault::kKillWorker}},
        Schedule{"HeartbeatsLost", {Fault::kMute, Fault::kMute}},
        Schedule{"CutOffBeyondTheLease", {Fault::kPartition, Fault::kPartition}},
        Schedule{"ConnectionsBreak", {Fault::kBreak, Fault::kBreak, Fault::kBreak}, false},
        Schedule{
            "KilledAgainWhileItRecovers",
            {Fault::kKillWorker, Fault::kKillShard, Fault::kKillCoordinator, Fault::kKillWorker}}),
    [](const testing::TestParamInfo<Schedule>& c) { return std::string(c.param.name); });

struct BugCase {
  SurvivalBug bug;
  const char* name;
  const char* symptom;  // What a violation must say.
};

class SurvivalBugTest : public testing::TestWithParam<BugCase> {};

TEST_P(SurvivalBugTest, IsFound) {
  constexpr uint64_t kSeedsToFind = 300;
  std::string seen;
  for (uint64_t seed = 1; seed <= kSeedsToFind; ++seed) {
    SurvivalOptions options = RandomSurvivalOptions(seed);
    options.bug = GetParam().bug;
    const SurvivalReport report = RunAndCompare(options);
    for (const std::string& violation : report.violations) {
      if (absl::StrContains(violation, GetParam().symptom)) {
        RecordProperty("seeds", static_cast<int>(seed));
        return;
      }
      seen = violation;
    }
  }
  FAIL() << "not found within " << kSeedsToFind << " seeds; seen: " << seen;
}

INSTANTIATE_TEST_SUITE_P(
    All, SurvivalBugTest,
    testing::Values(
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
        BugCase{SurvivalBug::kLeavesWithoutWaiting, "LeavesWithoutWaiting", "its record"}),
    [](const testing::TestParamInfo<BugCase>& c) { return std::string(c.param.name); });

TEST(SurvivalTest, EndsAsIfNothingHadHappenedForEverySeed) {
  SurvivalReport total;
  uint64_t faults = 0;
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + SeedCount(kSeeds); ++seed) {
    const SurvivalOptions options = RandomSurvivalOptions(seed);
    const SurvivalReport report = RunAndCompare(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    for (const auto& [fault, count] : report.faults) {
      total.faults[fault] += count;
      faults += count;
    }
    total.delivered += report.delivered;
    total.rollbacks += report.rollbacks;
    total.checkpoints += report.checkpoints;
    total.damaged_refused += report.damaged_refused;
  }
  RecordProperty("delivered", static_cast<int>(total.delivered / SeedCount(kSeeds)));
  RecordProperty("faults", static_cast<int>(faults));
  RecordProperty("rollbacks", static_cast<int>(total.rollbacks));
  RecordProperty("checkpoints", static_cast<int>(total.checkpoints));
  RecordProperty("damaged_refused", static_cast<int>(total.damaged_refused));
  for (const auto& [fault, count] : total.faults) {
    RecordProperty(ToString(fault), static_cast<int>(count));
  }
  if (SeedCount(kSeeds) < 100) return;
  // The faults were really there.
  EXPECT_GT(total.delivered, 200 * SeedCount(kSeeds));
  EXPECT_GT(faults, 3 * SeedCount(kSeeds));
  EXPECT_GT(total.rollbacks, SeedCount(kSeeds));
  EXPECT_GT(total.checkpoints, SeedCount(kSeeds));
  for (const Fault fault : kFaults) EXPECT_GT(total.faults[fault], SeedCount(kSeeds) / 10);
}

TEST(SurvivalTest, OneSeedGivesOneRun) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + 20; ++seed) {
    const SurvivalOptions options = RandomSurvivalOptions(seed);
    const SurvivalReport first = RunSurvival(options);
    const SurvivalReport second = RunSurvival(options);
    ASSERT_EQ(first.trace_hash, second.trace_hash) << Describe(options);
    ASSERT_EQ(first.parameters_hash, second.parameters_hash) << Describe(options);
  }
}

TEST(SurvivalTest, OtherDataGivesOtherParameters) {
  SurvivalOptions options = Usual(1);
  const uint32_t first = UndisturbedHash(options);
  ++options.data_seed;
  EXPECT_NE(first, UndisturbedHash(options));
}

}  // namespace
}  // namespace sluice
