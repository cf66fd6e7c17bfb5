// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/job_run.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/job_run_fixture.h"

namespace sluice::server {
namespace {

using protocol::JobPhase;

TEST_F(JobRunTest, ATermStartsWhenAllProcessesAreThereAndRunsWhenAllShardsHaveStarted) {
  Seat(0);
  Attach(0);
  Attach(1);
  run_.StartWhenComplete(now_, &effects_);
  EXPECT_TRUE(run_.gathering());
  EXPECT_EQ(run_.WhoIsMissing(), "rank 1");
  Seat(1);
  run_.StartWhenComplete(now_, &effects_);
  EXPECT_FALSE(run_.gathering());
  EXPECT_EQ(run_.term().generation, 1u);
  Acknowledge(0);
  run_.RunWhenStarted(now_, &effects_);
  EXPECT_EQ(run_.phase(), JobPhase::kWaiting);
  EXPECT_TRUE(EffectsOf<AnswerJoin>().empty());
  Acknowledge(1);
  run_.RunWhenStarted(now_, &effects_);
  EXPECT_EQ(run_.phase(), JobPhase::kRunning);
  EXPECT_EQ(EffectsOf<AnswerJoin>().size(), 2u);
}

TEST_F(JobRunTest, ARollbackEndsTheTermAndGoesBackToTheNewestCheckpoint) {
  Start();
  CompleteCheckpoint(10);
  run_.NoteStep(15);
  run_.RollBack("shard 0 is lost", now_, &effects_);
  EXPECT_EQ(run_.phase(), JobPhase::kRecovering);
  EXPECT_TRUE(run_.gathering());
  EXPECT_EQ(run_.term().number, 1u);
  EXPECT_EQ(run_.term().restore_step, 10u);
  EXPECT_EQ(run_.roster().Present(), 0u);
  EXPECT_EQ(run_.recoveries().last_rollback(),
            "shard 0 is lost; the job goes back from step 15 to step 10: 5 steps are lost");
  ASSERT_FALSE(EffectsOf<PersistRun>().empty());
  EXPECT_EQ(EffectsOf<PersistRun>()[0].record.term, 1u);
}

TEST_F(JobRunTest, ARunEndsOnlyOnce) {
  Seat(0);
  run_.TimeOut("waited too long", &effects_);
  ASSERT_EQ(EffectsOf<AnswerJoin>().size(), 1u);
  EXPECT_EQ(EffectsOf<AnswerJoin>()[0].grant.status(),
            absl::DeadlineExceededError("waited too long"));
  run_.Fail("another reason", &effects_);
  run_.Finish(&effects_);
  run_.RollBack("a loss", now_, &effects_);
  EXPECT_EQ(run_.phase(), JobPhase::kFailed);
  EXPECT_EQ(run_.failure(), "waited too long");
  EXPECT_EQ(run_.term().number, 0u);
}

TEST_F(JobRunTest, AGenerationIsRecorded) {
  Start();
  run_.BeginGeneration(&effects_);
  EXPECT_EQ(run_.term().generation, 2u);
  ASSERT_EQ(effects_.size(), 1u);
  EXPECT_EQ(EffectsOf<PersistRun>().at(0).record.generation, 2u);
}

TEST_F(JobRunTest, ASenderOfAnEarlierTermIsRecognized) {
  Start();
  const protocol::Sender sender = BeatOf(1).sender;
  EXPECT_FALSE(run_.IsOfEarlierTerm(sender));
  run_.RollBack("a loss", now_, &effects_);
  EXPECT_TRUE(run_.IsOfEarlierTerm(sender));
}

class RackRunTest : public JobRunTest {
 protected:
  static CoordinatorOptions RackOptions() {
    CoordinatorOptions options = RepairOptions();
    options.checkpoint.replay_limit = 0;
    options.in_rack = true;
    return options;
  }
  RackRunTest() : JobRunTest(RackOptions()) {}
};

TEST_F(RackRunTest, TheParentJobStartsTheTermAndEndsTheRun) {
  for (const uint32_t each : {0u, 1u}) {
    Seat(each);
    Attach(each);
  }
  run_.StartWhenComplete(now_, &effects_);
  run_.StartWhenComplete(now_, &effects_);
  EXPECT_EQ(EffectsOf<AskParent>().size(), 1u);
  EXPECT_TRUE(run_.gathering());
  EXPECT_EQ(run_.WhoIsMissing(), "the parent job");
  run_.StartRackTerm(0, 0, /*parameters_agree=*/true, now_, &effects_);
  EXPECT_FALSE(run_.gathering());
  run_.Finish(&effects_);
  EXPECT_EQ(EffectsOf<LeaveParent>().size(), 1u);
  EXPECT_FALSE(run_.ended());
  run_.FinishParent(0, &effects_);
  EXPECT_EQ(run_.phase(), JobPhase::kFinished);
}

}  // namespace
}  // namespace sluice::server
