// Schedules by name, each over some moments at which it can strike.
#include <gtest/gtest.h>

#include "tests/sim/sim_failure.h"
#include "tests/sim/survival.h"

namespace sluice {
namespace {

struct Schedule {
  const char* name;
  std::vector<Fault> faults;
};

class ScheduleTest : public testing::TestWithParam<Schedule> {};

TEST_P(ScheduleTest, EndsAsIfNothingHadHappened) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SurvivalOptions options = UsualJob(seed);
    options.faults = GetParam().faults;
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ScheduleTest,
    testing::Values(Schedule{"Nothing", {}}, Schedule{"WorkerKilled", {Fault::kKillWorker}},
                    Schedule{"ShardKilled", {Fault::kKillShard}},
                    Schedule{"CoordinatorKilled", {Fault::kKillCoordinator}},
                    Schedule{"WorkerAndShardKilledTogether", {Fault::kKillWorkerAndShard}},
                    Schedule{"PowerCutOfEverything", {Fault::kPowerCut}},
                    Schedule{"PowerCutTwice", {Fault::kPowerCut, Fault::kPowerCut}},
                    Schedule{"NewestSnapshotCorrupt", {Fault::kDamage, Fault::kPowerCut}},
                    Schedule{"NewestSnapshotCorruptAndAWorkerKilled",
                             {Fault::kDamage, Fault::kKillWorker}},
                    Schedule{"PausedBeyondTheLease", {Fault::kPause, Fault::kPause, Fault::kPause}},
                    Schedule{"DiskFullWhenAWorkerDies", {Fault::kDiskFull, Fault::kKillWorker}},
                    Schedule{"HeartbeatsLost", {Fault::kMute, Fault::kMute}},
                    Schedule{"CutOffBeyondTheLease", {Fault::kPartition, Fault::kPartition}},
                    Schedule{"ConnectionsBreak", {Fault::kBreak, Fault::kBreak, Fault::kBreak}},
                    Schedule{"KilledAgainWhileItRecovers",
                             {Fault::kKillWorker, Fault::kKillShard, Fault::kKillCoordinator,
                              Fault::kKillWorker}}),
    [](const testing::TestParamInfo<Schedule>& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace sluice
