// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/recovery_outlook.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/job_run_fixture.h"

namespace sluice::server {
namespace {

// The newest checkpoint is that after step 10.
class RecoveryOutlookTest : public JobRunTest {
 protected:
  RecoveryOutlookTest() {
    Start();
    CompleteCheckpoint(10);
  }
  RecoveryOutlook Outlook() const { return RecoveryOutlook(run_); }
};

TEST_F(RecoveryOutlookTest, KeptDataRepairsEveryLoss) {
  EXPECT_EQ(Outlook().WhyNoRepair(/*shard_lost=*/true, /*worker_lost=*/true), "");
  EXPECT_TRUE(Outlook().AllowsReexecution());
  EXPECT_EQ(Outlook().Class(), RecoveryClass::kReplay);
  EXPECT_EQ(Outlook().WhyRollback(), "");
}

TEST_F(RecoveryOutlookTest, TheWorkerThatForgotContributionsIsNamed) {
  protocol::WorkerHeartbeat heartbeat = BeatOf(1);
  heartbeat.replay_from = 12;
  run_.roster().ReportFiles(heartbeat);
  EXPECT_EQ(Outlook().WhyNoRepair(/*shard_lost=*/false, /*worker_lost=*/true), "");
  const std::string why = Outlook().WhyNoRepair(/*shard_lost=*/true, /*worker_lost=*/false);
  EXPECT_TRUE(why.starts_with("rank 1 (host a, pid 121) keeps only contributions from step 12 on"))
      << why;
  EXPECT_EQ(Outlook().Class(), RecoveryClass::kRollback);
  EXPECT_EQ(Outlook().WhyRollback(), why);
}

TEST_F(RecoveryOutlookTest, TheShardThatForgotResultsIsNamedUnlessItWillReplay) {
  run_.fleet().Health(12, {.results_from = 13}, now_);
  const std::string why = Outlook().WhyNoRepair(/*shard_lost=*/false, /*worker_lost=*/true);
  EXPECT_TRUE(why.starts_with("shard 1 (h:7071) keeps only results from step 13 on")) << why;
  EXPECT_FALSE(Outlook().AllowsReexecution());
  Attach(1, /*incarnation=*/60);
  run_.fleet().AwaitReplay(1);
  EXPECT_TRUE(Outlook().AllowsReexecution());
}

TEST_F(RecoveryOutlookTest, AJobThatDoesNotRunRollsBack) {
  run_.RollBack("a loss", now_, &effects_);
  EXPECT_EQ(Outlook().Class(), RecoveryClass::kRollback);
  EXPECT_EQ(Outlook().WhyRollback(), "the job is recovering");
}

class NoCheckpointsTest : public JobRunTest {
 protected:
  NoCheckpointsTest() : JobRunTest(WithoutCheckpoints()) {}
};

TEST_F(NoCheckpointsTest, AJobWithoutCheckpointsRecoversFromNoLoss) {
  Start();
  EXPECT_EQ(RecoveryOutlook(run_).Class(), RecoveryClass::kNone);
  EXPECT_EQ(RecoveryOutlook(run_).WhyRollback(), "");
}

}  // namespace
}  // namespace sluice::server
