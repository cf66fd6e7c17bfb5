// SPDX-License-Identifier: Apache-2.0
// Named fault schedules, each at several moments at which it can strike. These jobs have no plans.
// Results of shard 0 carry checkpoint names just as they would carry plans.
#include <gtest/gtest.h>

#include "tests/sim/sim_failure.h"
#include "tests/sim/survival.h"

namespace sluice {
namespace {

enum class Rollback { kNever, kInSome, kWhenNeeded };

struct Schedule {
  const char* name;
  std::vector<Fault> faults;
  Rollback rollback = Rollback::kNever;
  bool shard_is_replayed = false;  // In some seeds.
  bool rank_goes_again = false;    // In some seeds.
  void (*prepare)(SurvivalOptions*) = nullptr;
};

class ScheduleTest : public testing::TestWithParam<Schedule> {};

TEST_P(ScheduleTest, EndsAsIfNothingHadHappened) {
  const Schedule& schedule = GetParam();
  SurvivalReport total;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SurvivalOptions options = UsualJob(seed);
    options.faults = schedule.faults;
    if (schedule.prepare != nullptr) schedule.prepare(&options);
    const SurvivalReport report = RunSurvival(options);
    ASSERT_TRUE(report.violations.empty()) << Failure(options, report);
    total.rollbacks += report.rollbacks;
    total.shards_replayed += report.shards_replayed;
    total.ranks_reexecuted += report.ranks_reexecuted;
  }
  if (schedule.rollback != Rollback::kWhenNeeded) {
    EXPECT_EQ(total.rollbacks > 0, schedule.rollback == Rollback::kInSome);
  }
  EXPECT_EQ(total.shards_replayed > 0, schedule.shard_is_replayed);
  EXPECT_EQ(total.ranks_reexecuted > 0, schedule.rank_goes_again);
}

INSTANTIATE_TEST_SUITE_P(
    Protocol, ScheduleTest,
    testing::Values(
        Schedule{"RetryAcrossAGenerationChange",
                 {Fault::kBreak, Fault::kKillWorker, Fault::kBreak, Fault::kBreak},
                 Rollback::kNever,
                 false,
                 true,
                 [](SurvivalOptions* options) {
                   options->lost_share = 0.02;
                   options->repeat_share = 0.05;
                 }},
        Schedule{"CrashAfterTheFirstResultWasSent",
                 {},
                 Rollback::kNever,
                 true,
                 false,
                 [](SurvivalOptions* options) {
                   options->crash_after_result_of = 1 + options->data_seed;
                 }},
        Schedule{"WorkerAndShardKilledTogether",
                 {Fault::kKillWorkerAndShard},
                 Rollback::kNever,
                 true,
                 true},
        Schedule{"NewestSnapshotCorrupt", {Fault::kDamage, Fault::kPowerCut}, Rollback::kInSome},
        Schedule{"RejoinWithAnOldResidual",
                 {Fault::kKillWorker, Fault::kKillWorker},
                 Rollback::kNever,
                 false,
                 true},
        Schedule{"Shard0PausedBeyondTheLease", {Fault::kClockGap, Fault::kClockGap}},
        Schedule{"WindowsFullAtTheBarrier",
                 {Fault::kKillShard, Fault::kBreak, Fault::kBreak},
                 Rollback::kNever,
                 true,
                 false,
                 [](SurvivalOptions* options) { options->window_bytes = 64; }},
        Schedule{"NameOfACheckpointLost",
                 {},
                 Rollback::kNever,
                 false,
                 false,
                 [](SurvivalOptions* options) { options->lost_share = 0.1; }},
        Schedule{"TwoInstancesOfOneShard", {Fault::kTwoInstances}, Rollback::kNever, true},
        Schedule{"ARankThatSendsNaN",
                 {Fault::kKillWorker},
                 Rollback::kNever,
                 false,
                 true,
                 [](SurvivalOptions* options) { options->nan_share = 0.5; }},
        Schedule{"ARankAlwaysLate",
                 {Fault::kKillShard, Fault::kKillWorker},
                 Rollback::kNever,
                 true,
                 true,
                 [](SurvivalOptions* options) { options->late_rank = 1; }},
        Schedule{"PowerCutOfEverything", {Fault::kPowerCut}, Rollback::kInSome}),
    [](const testing::TestParamInfo<Schedule>& c) { return std::string(c.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Losses, ScheduleTest,
    testing::Values(
        Schedule{"Nothing", {}},
        Schedule{"WorkerKilled", {Fault::kKillWorker}, Rollback::kNever, false, true},
        Schedule{
            "WorkersEvicted", {Fault::kEvicted, Fault::kEvicted}, Rollback::kNever, false, true},
        Schedule{"ShardKilled", {Fault::kKillShard}, Rollback::kNever, true},
        Schedule{"CoordinatorKilled", {Fault::kKillCoordinator}, Rollback::kNever, true},
        Schedule{"TwoOfAnyKilled", {Fault::kKillTwo}, Rollback::kWhenNeeded, true, true},
        Schedule{"PowerCutTwice", {Fault::kPowerCut, Fault::kPowerCut}, Rollback::kInSome},
        Schedule{"NewestSnapshotCorruptAndAWorkerKilled",
                 {Fault::kDamage, Fault::kKillWorker},
                 Rollback::kWhenNeeded,
                 false,
                 true},
        Schedule{"DiskLost", {Fault::kLoseDisk}, Rollback::kInSome, true, true},
        Schedule{"ProcessesPausedBeyondTheLease", {Fault::kPause, Fault::kPause, Fault::kPause}},
        Schedule{"DiskFullWhenAWorkerDies",
                 {Fault::kDiskFull, Fault::kKillWorker},
                 Rollback::kNever,
                 false,
                 true},
        Schedule{"HeartbeatsLost", {Fault::kMute, Fault::kMute}},
        Schedule{"CutOffBeyondTheLease", {Fault::kPartition, Fault::kPartition}},
        Schedule{"ConnectionsBreak", {Fault::kBreak, Fault::kBreak, Fault::kBreakControl}},
        Schedule{
            "SuccessorComputesSomethingElse", {Fault::kOtherBytes}, Rollback::kInSome, false, true},
        Schedule{"NothingIsKept",
                 {Fault::kKillWorker},
                 Rollback::kInSome,
                 false,
                 false,
                 [](SurvivalOptions* options) { options->replay_limit = 0; }},
        Schedule{"TooLittleIsKept",
                 {Fault::kKillShard, Fault::kKillWorker},
                 Rollback::kInSome,
                 true,
                 true,
                 [](SurvivalOptions* options) { options->replay_limit = 4096; }},
        Schedule{
            "KilledAgainWhileItRecovers",
            {Fault::kKillWorker, Fault::kKillShard, Fault::kKillCoordinator, Fault::kKillWorker},
            Rollback::kWhenNeeded,
            true,
            true}),
    [](const testing::TestParamInfo<Schedule>& c) { return std::string(c.param.name); });

// The shards hold the parameters and an optimizer with state. Before the first checkpoint, a lost
// shard loses the parameters and the workers' starting point.
void OnShards(SurvivalOptions* options) {
  options->rule = job::OptimizerSpec{
      .name = "adamw", .weight_decay = 0.01, .location = job::UpdateLocation::kShards};
}

INSTANTIATE_TEST_SUITE_P(
    UpdatesOnShards, ScheduleTest,
    testing::Values(
        Schedule{"Nothing", {}, Rollback::kNever, false, false, OnShards},
        Schedule{
            "WorkerKilled", {Fault::kKillWorker}, Rollback::kWhenNeeded, false, true, OnShards},
        Schedule{"ShardKilled", {Fault::kKillShard}, Rollback::kWhenNeeded, true, false, OnShards},
        Schedule{"CoordinatorKilled",
                 {Fault::kKillCoordinator},
                 Rollback::kWhenNeeded,
                 true,
                 false,
                 OnShards},
        Schedule{"WorkerAndShardKilledTogether",
                 {Fault::kKillWorkerAndShard},
                 Rollback::kWhenNeeded,
                 true,
                 true,
                 OnShards},
        Schedule{"PowerCutTwice",
                 {Fault::kPowerCut, Fault::kPowerCut},
                 Rollback::kInSome,
                 false,
                 false,
                 OnShards},
        Schedule{"NewestSnapshotCorrupt",
                 {Fault::kDamage, Fault::kPowerCut},
                 Rollback::kInSome,
                 false,
                 false,
                 OnShards},
        Schedule{"TwoInstancesOfOneShard",
                 {Fault::kTwoInstances},
                 Rollback::kWhenNeeded,
                 true,
                 false,
                 OnShards}),
    [](const testing::TestParamInfo<Schedule>& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace sluice
