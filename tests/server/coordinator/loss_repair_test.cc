// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/loss_repair.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/job_run_fixture.h"

namespace sluice::server {
namespace {

class LossRepairTest : public JobRunTest {
 protected:
  LossRepairTest() {
    Start();
    CompleteCheckpoint(10);
  }
  // Another process attaches for shard 1.
  void RestartShard() {
    Attach(1, /*incarnation=*/60);
    repair_.ShardAttached(run_.fleet()[1], /*is_new=*/true, now_);
    effects_.clear();
  }
  ShardState StateOfShard() const { return run_.fleet()[1].state; }

  LossRepair repair_{&run_};
};

TEST_F(LossRepairTest, ARestartedShardReplaysUntilItHasCaughtUp) {
  RestartShard();
  EXPECT_EQ(StateOfShard(), ShardState::kAwaitsReplay);
  repair_.StartReplays(now_, &effects_);
  EXPECT_EQ(StateOfShard(), ShardState::kStartsReplay);
  EXPECT_EQ(Events(), Texts{"repair"});
  const std::vector<CommandShard> commands = EffectsOf<CommandShard>();
  ASSERT_EQ(commands.size(), 1u);
  const auto& start = std::get<protocol::StartShard>(commands[0].command);
  EXPECT_TRUE(start.replay);
  EXPECT_EQ(start.restore_step, 10u);
  Acknowledge(1);
  now_ += absl::Seconds(1);
  for (const uint32_t rank : {0u, 1u}) ReportStep(rank, 12);
  repair_.EndReplays(now_, &effects_);
  EXPECT_EQ(StateOfShard(), ShardState::kReplays);
  run_.fleet().Health(12, {.highest_closed_step = 12}, now_);
  repair_.EndReplays(now_, &effects_);
  EXPECT_EQ(StateOfShard(), ShardState::kRuns);
}

TEST_F(LossRepairTest, AWrongStepDelaysTheEndOfAReplayOnlyUntilTheNextReport) {
  RestartShard();
  repair_.StartReplays(now_, &effects_);
  Acknowledge(1);
  now_ += absl::Seconds(1);
  ReportStep(0, 12);
  ReportStep(1, 500'000);
  run_.NoteStep(500'000);
  run_.fleet().Health(12, {.highest_closed_step = 12}, now_);
  repair_.EndReplays(now_, &effects_);
  EXPECT_EQ(StateOfShard(), ShardState::kReplays);
  ReportStep(1, 12);
  repair_.EndReplays(now_, &effects_);
  EXPECT_EQ(StateOfShard(), ShardState::kRuns);
}

TEST_F(LossRepairTest, AnAbsurdStepDoesNotDelayTheEndOfAReplay) {
  RestartShard();
  repair_.StartReplays(now_, &effects_);
  Acknowledge(1);
  now_ += absl::Seconds(1);
  ReportStep(0, 12);
  ReportStep(1, uint64_t{1} << 62);
  run_.fleet().Health(12, {.highest_closed_step = 12}, now_);
  repair_.EndReplays(now_, &effects_);
  EXPECT_EQ(StateOfShard(), ShardState::kRuns);
}

TEST_F(LossRepairTest, AReplayWaitsWhileACheckpointIsWritten) {
  run_.checkpoints().Named(20);
  for (const uint32_t each : {0u, 1u}) {
    AddPart(20, protocol::WorkerPartName(each, 0));
    AddPart(20, protocol::ShardPartName(each, 0));
  }
  ASSERT_TRUE(run_.book().being_written());
  RestartShard();
  repair_.StartReplays(now_, &effects_);
  EXPECT_EQ(StateOfShard(), ShardState::kAwaitsReplay);
}

TEST_F(LossRepairTest, AReplayWithoutItsDataIsARollback) {
  protocol::WorkerHeartbeat heartbeat = BeatOf(0);
  heartbeat.replay_from = 12;
  run_.roster().ReportFiles(heartbeat);
  RestartShard();
  repair_.StartReplays(now_, &effects_);
  EXPECT_TRUE(run_.is_recovering());
  EXPECT_EQ(Events(), Texts{"rollback"});
}

TEST_F(LossRepairTest, AProcessThatRunsTheTermDoesNotReplay) {
  protocol::ShardArrival arrival = ArrivalOf(1, 60);
  arrival.running = true;
  arrival.job_uid = 77;
  run_.fleet().Attach(12, arrival, now_, &effects_);
  repair_.ShardAttached(run_.fleet()[1], /*is_new=*/true, now_);
  EXPECT_EQ(StateOfShard(), ShardState::kRuns);
}

TEST_F(LossRepairTest, ANewcomerTakesTheRankOfASilentWorker) {
  now_ += absl::Seconds(5);
  Report(0);
  AwaitRank(1, 3);
  repair_.ReplaceWorkers(now_, &effects_);
  EXPECT_EQ(run_.roster()[1].token, 3u);
  EXPECT_EQ(run_.roster()[1].replay_from, 11u);
  EXPECT_EQ(run_.term().generation, 2u);
  // The record is durable before anybody hears of the members.
  ASSERT_GE(effects_.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<PersistRun>(effects_[0]));
  EXPECT_EQ(Events(), Texts{"repair"});
  EXPECT_TRUE(std::holds_alternative<CommandShard>(effects_.back()));
}

TEST_F(LossRepairTest, ANewcomerWaitsWhileTheHolderReports) {
  AwaitRank(1, 3);
  repair_.ReplaceWorkers(now_, &effects_);
  EXPECT_EQ(run_.term().generation, 1u);
  EXPECT_TRUE(effects_.empty());
}

TEST_F(LossRepairTest, IfAllWorkersAreNewTheJobRollsBack) {
  now_ += absl::Seconds(5);
  AwaitRank(0, 3);
  AwaitRank(1, 4);
  repair_.ReplaceWorkers(now_, &effects_);
  EXPECT_TRUE(run_.is_recovering());
  EXPECT_TRUE(LastNotice().find("no worker of term 0 is left") != std::string::npos)
      << LastNotice();
}

TEST_F(LossRepairTest, AChangedConsequenceOfALossIsAnnouncedOnce) {
  repair_.WatchOutlook(&effects_);
  EXPECT_TRUE(effects_.empty());
  run_.fleet().Health(12, {.results_from = 13}, now_);
  repair_.WatchOutlook(&effects_);
  repair_.WatchOutlook(&effects_);
  EXPECT_EQ(Events(), Texts{"recovery_class"});
}

class NoRepairTest : public JobRunTest {
 protected:
  static CoordinatorOptions NoReplay() {
    CoordinatorOptions options = RepairOptions();
    options.checkpoint.replay_limit = 0;
    return options;
  }
  NoRepairTest() : JobRunTest(NoReplay()) {}
};

TEST_F(NoRepairTest, WithoutReplaysANewcomerIsARollback) {
  Start();
  now_ += absl::Seconds(5);
  AwaitRank(1, 3);
  LossRepair(&run_).ReplaceWorkers(now_, &effects_);
  EXPECT_TRUE(run_.is_recovering());
}

}  // namespace
}  // namespace sluice::server
