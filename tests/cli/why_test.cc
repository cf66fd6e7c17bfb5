// SPDX-License-Identifier: Apache-2.0
#include "cli/why.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/status_samples.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::GetStatusReply Running() {
  v1::GetStatusReply status;
  status.set_job_name("mnist");
  status.set_phase(v1::JOB_PHASE_RUNNING);
  status.set_uptime_ms(15'000);
  status.set_world_size(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    v1::MemberStatus* const member = status.add_members();
    member->set_rank(rank);
    member->set_joined(true);
    member->mutable_progress()->set_step(120 + rank);
    member->mutable_progress()->set_total_steps(468);
  }
  status.add_shards()->set_attached(true);
  return status;
}

TEST(WhyTest, SaysThatNothingHoldsAJobUp) {
  v1::GetStatusReply status = Running();
  EXPECT_EQ(
      ExplainJob(status),
      "The job mnist runs at step 120 of 468, 0:15 after shard 0 started. Nothing holds it up.");
  for (v1::MemberStatus& member : *status.mutable_members()) {
    member.mutable_progress()->set_seconds_left(90);
  }
  status.set_checkpoint_step(100);
  status.set_seconds_since_checkpoint(12);
  EXPECT_EQ(ExplainJob(status),
            "The job mnist runs at step 120 of 468, 0:15 after shard 0 started; 1:30 are left. "
            "Nothing holds it up. The newest checkpoint is that after step 100, 0:12 old.");
}

TEST(WhyTest, SaysProblemsFirstAndWhatToDo) {
  v1::GetStatusReply status = Running();
  Warn("note", "each worker here is a relay", "", &status);
  Warn("slow", "worker 0 waits on its link: 92 % of a step", "use fewer bytes", &status);
  Warn("problem", "worker 1 is lost", "restart it", &status);
  EXPECT_EQ(ExplainJob(status),
            "The job mnist runs at step 120 of 468, 0:15 after shard 0 started. Worker 1 is lost. "
            "Restart it. Worker 0 waits on its link: 92 % of a step. Use fewer bytes. Each worker "
            "here is a relay.");
}

TEST(WhyTest, SaysWhatAJobThatHasNotBegunWaitsFor) {
  v1::GetStatusReply status = Running();
  status.set_phase(v1::JOB_PHASE_WAITING);
  status.mutable_members(1)->set_joined(false);
  for (v1::MemberStatus& member : *status.mutable_members()) member.clear_progress();
  Warn("note", "the job waits for worker 1 to join", "start what is missing", &status);
  EXPECT_EQ(ExplainJob(status),
            "The job mnist has not begun: 1 of 2 workers and 1 of 1 shards have joined. The job "
            "waits for worker 1 to join. Start what is missing.");
}

TEST(WhyTest, SaysHowAJobEnded) {
  v1::GetStatusReply status = Running();
  status.set_phase(v1::JOB_PHASE_FINISHED);
  EXPECT_EQ(ExplainJob(status), "The job mnist has finished at step 120 of 468.");
  status.set_phase(v1::JOB_PHASE_FAILED);
  Warn("problem", "the job has failed: disk full", "fix the cause", &status);
  EXPECT_EQ(ExplainJob(status),
            "The job mnist has ended without a result at step 120 of 468. The job has failed: disk "
            "full. Fix the cause.");
}

TEST(WhyTest, SaysWhatARecoveringJobLost) {
  v1::GetStatusReply status = Running();
  status.set_phase(v1::JOB_PHASE_RECOVERING);
  status.set_last_rollback("shard 1 was restarted; the job goes back to step 100");
  EXPECT_THAT(ExplainJob(status),
              StartsWith("The job mnist recovers at step 120 of 468: shard 1 was restarted; the "
                         "job goes back to step 100."));
}

TEST(WhyTest, EscapesTextsOfOtherProcesses) {
  v1::GetStatusReply status = Running();
  Warn("problem", "worker 1 (\x1b[2J) is lost", "", &status);
  EXPECT_THAT(ExplainJob(status), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace sluice::cli
