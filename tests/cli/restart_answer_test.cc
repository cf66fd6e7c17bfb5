// SPDX-License-Identifier: Apache-2.0
#include "cli/restart_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/status_samples.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kWhatToDo[] =
    " Start it again within server.rejoin_timeout: the other processes wait that long, and then "
    "the job ends. `sluice run` and the Helm chart start it by themselves.";
constexpr char kOneAtATime[] = " Restart one shard at a time, and ask again before the next one.";

v1::GetStatusReply Running() {
  v1::GetStatusReply status;
  status.set_job_name("mnist");
  status.set_phase(v1::JOB_PHASE_RUNNING);
  status.set_world_size(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    v1::MemberStatus* const member = status.add_members();
    member->set_rank(rank);
    member->set_joined(true);
  }
  for (uint32_t shard = 0; shard < 2; ++shard) {
    v1::ShardStatus* const added = status.add_shards();
    added->set_shard(shard);
    added->set_address("10.0.0.1:707" + std::to_string(shard));
    added->set_attached(true);
    added->set_highest_closed_step(107);
  }
  status.set_recovery_class("replay");
  status.set_checkpoint_step(100);
  status.set_seconds_since_checkpoint(2);
  return status;
}

RestartAnswer AnswerTo(const v1::GetStatusReply& status, uint32_t shard = 1) {
  absl::StatusOr<RestartAnswer> answer = MayRestart(status, shard);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? *answer : RestartAnswer{.safe = true, .text = "no answer"};
}

TEST(RestartAnswerTest, ReplaysTheStepsAfterTheCheckpoint) {
  const RestartAnswer answer = AnswerTo(Running());
  EXPECT_TRUE(answer.safe);
  EXPECT_TRUE(answer.checkpoint_helps);
  EXPECT_EQ(
      answer.text,
      std::string("Shard 1 (10.0.0.1:7071) of the job mnist may be restarted now. The newest "
                  "checkpoint is that after step 100, 0:02 old. The new process reads it and "
                  "replays the steps since (7 at present) from data that the workers keep, so "
                  "no step is lost.") +
          kWhatToDo + kOneAtATime);
}

TEST(RestartAnswerTest, ReplaysAllStepsBeforeTheFirstCheckpoint) {
  v1::GetStatusReply status = Running();
  status.set_checkpoint_step(0);
  status.set_seconds_since_checkpoint(0);
  const RestartAnswer answer = AnswerTo(status);
  EXPECT_TRUE(answer.safe);
  EXPECT_THAT(answer.text, HasSubstr("There is no checkpoint yet. The new process repeats all "
                                     "steps (107 at present) from data that the workers keep"));
}

TEST(RestartAnswerTest, SaysThatNobodyAnswersWithoutShard0) {
  EXPECT_THAT(AnswerTo(Running(), 0).text, HasSubstr("Shard 0 is also the coordinator"));
  EXPECT_THAT(AnswerTo(Running(), 1).text, Not(HasSubstr("coordinator")));
}

TEST(RestartAnswerTest, GoesBackToTheCheckpoint) {
  v1::GetStatusReply status = Running();
  status.set_recovery_class("rollback");
  status.set_recovery_reason("the job has a quorum");
  const RestartAnswer answer = AnswerTo(status);
  EXPECT_TRUE(answer.safe);
  EXPECT_THAT(answer.text,
              HasSubstr("may be restarted now. The job then goes back to the checkpoint after step "
                        "100, 0:02 old and repeats the steps since (7 at present), because the job "
                        "has a quorum. Start it again"));
}

TEST(RestartAnswerTest, RefusesARollbackToTheBeginning) {
  v1::GetStatusReply status = Running();
  status.set_recovery_class("rollback");
  status.set_checkpoint_step(0);
  const RestartAnswer answer = AnswerTo(status);
  EXPECT_FALSE(answer.safe);
  EXPECT_TRUE(answer.checkpoint_helps);
  EXPECT_THAT(answer.text, HasSubstr("there is no checkpoint yet, so the job would begin again"));
}

TEST(RestartAnswerTest, RefusesAJobWithoutCheckpoints) {
  for (const char* const recovery : {"none", ""}) {
    v1::GetStatusReply status = Running();
    status.set_recovery_class(recovery);
    status.set_checkpoint_step(0);
    const RestartAnswer answer = AnswerTo(status);
    EXPECT_FALSE(answer.safe);
    EXPECT_FALSE(answer.checkpoint_helps);
    EXPECT_EQ(answer.text,
              "Do not restart shard 1 (10.0.0.1:7071) of the job mnist: it has no checkpoints, so "
              "the loss of any process ends it. Wait until it has finished, or run it with a "
              "`checkpoint` section.");
  }
}

TEST(RestartAnswerTest, OtherProcessesMustReturnFirst) {
  v1::GetStatusReply status = Running();
  status.mutable_members(1)->set_lost(true);
  status.mutable_shards(0)->set_attached(false);
  const RestartAnswer answer = AnswerTo(status);
  EXPECT_FALSE(answer.safe);
  EXPECT_FALSE(answer.checkpoint_helps);
  EXPECT_THAT(answer.text, StartsWith("Do not restart shard 1 (10.0.0.1:7071) of the job mnist "
                                      "now: the job waits for shard 0 and worker 1, which must "
                                      "return first."));
  status = Running();
  status.mutable_shards(0)->set_lost(true);
  EXPECT_FALSE(AnswerTo(status).safe);
}

TEST(RestartAnswerTest, ARankWithoutAWorkerIsNotMissing) {
  v1::GetStatusReply status = Running();
  status.add_members()->set_rank(2);
  EXPECT_TRUE(AnswerTo(status).safe);
}

TEST(RestartAnswerTest, TheShardMayBeGoneAlready) {
  v1::GetStatusReply status = Running();
  status.mutable_shards(1)->set_lost(true);
  Warn("problem", "shard 1 has not reported", "restart it", &status);
  const RestartAnswer answer = AnswerTo(status);
  EXPECT_TRUE(answer.safe);
  EXPECT_FALSE(answer.checkpoint_helps);
  EXPECT_THAT(answer.text, HasSubstr("is gone already, and the job waits for it."));
}

TEST(RestartAnswerTest, ASilentShardMayBeRestartedWithoutANewCheckpoint) {
  v1::GetStatusReply status = Running();
  status.mutable_shards(1)->set_seconds_since_report(7.5);
  Warn("problem", "shard 1 has not reported", "check its machine", &status);
  const RestartAnswer answer = AnswerTo(status);
  EXPECT_TRUE(answer.safe);
  EXPECT_FALSE(answer.checkpoint_helps);
  EXPECT_THAT(answer.text, HasSubstr("has not reported for 7 s. It may be restarted now."));
}

TEST(RestartAnswerTest, ProblemsComeFirst) {
  v1::GetStatusReply status = Running();
  Warn("slow", "worker 0 waits on its link", "", &status);
  EXPECT_TRUE(AnswerTo(status).safe);
  Warn("problem", "the checkpoint after step 90 was abandoned", "check its disk", &status);
  const RestartAnswer answer = AnswerTo(status);
  EXPECT_FALSE(answer.safe);
  EXPECT_TRUE(answer.checkpoint_helps);  // The next one may succeed.
  EXPECT_EQ(
      answer.text,
      "Do not restart shard 1 (10.0.0.1:7071) of the job mnist now: first solve what is wrong "
      "with the job. The checkpoint after step 90 was abandoned. Check its disk.");
}

TEST(RestartAnswerTest, WaitsUntilTheJobRuns) {
  v1::GetStatusReply status = Running();
  status.set_phase(v1::JOB_PHASE_WAITING);
  EXPECT_FALSE(AnswerTo(status).safe);
  EXPECT_THAT(AnswerTo(status).text, HasSubstr("now: the job has not begun."));
  status.set_phase(v1::JOB_PHASE_RECOVERING);
  EXPECT_FALSE(AnswerTo(status).safe);
  EXPECT_FALSE(AnswerTo(status).checkpoint_helps);
  EXPECT_THAT(AnswerTo(status).text, HasSubstr("now: the job recovers from a loss."));
}

TEST(RestartAnswerTest, FailsWithoutSuchAShardOrJob) {
  v1::GetStatusReply status = Running();
  EXPECT_EQ(MayRestart(status, 2).status(),
            absl::NotFoundError("the job mnist has no shard 2: its shards are 0 to 1"));
  status.set_phase(v1::JOB_PHASE_FINISHED);
  EXPECT_EQ(
      MayRestart(status, 1).status(),
      absl::FailedPreconditionError("the job mnist has finished, so there is no shard to restart"));
  status.set_phase(v1::JOB_PHASE_FAILED);
  EXPECT_EQ(MayRestart(status, 1).status(),
            absl::FailedPreconditionError(
                "the job mnist has ended without a result, so there is no shard to restart"));
}

TEST(RestartAnswerTest, EscapesTextsOfOtherProcesses) {
  v1::GetStatusReply status = Running();
  status.mutable_shards(1)->set_address("\x1b[2J");
  EXPECT_THAT(AnswerTo(status).text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace sluice::cli
