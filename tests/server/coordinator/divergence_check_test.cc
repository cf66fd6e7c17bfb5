// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/divergence_check.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/job_run_fixture.h"

namespace sluice::server {
namespace {

class DivergenceCheckTest : public JobRunTest {
 protected:
  DivergenceCheckTest() { Start(); }
  void Report(uint32_t rank, uint64_t step, std::string hash) {
    protocol::WorkerHeartbeat heartbeat = BeatOf(rank);
    heartbeat.parameters_hash_step = step;
    heartbeat.parameters_sha256 = std::move(hash);
    check_.Compare(heartbeat, now_, &effects_);
  }

  DivergenceCheck check_{&run_};
};

TEST_F(DivergenceCheckTest, DifferentParametersEndTheJob) {
  Report(0, 5, "a");
  Report(1, 5, "a");
  Report(0, 6, "a");
  EXPECT_TRUE(run_.is_running());
  Report(1, 6, "b");
  EXPECT_EQ(run_.phase(), protocol::JobPhase::kFailed);
  EXPECT_TRUE(
      run_.failure().starts_with("after step 6 the parameters of rank 1 (host a, pid 121) "
                                 "differ from those of rank 0 (host a, pid 120)"))
      << run_.failure();
}

TEST_F(DivergenceCheckTest, TheFirstStepCountsAndHeartbeatsWithoutAHashDoNot) {
  Report(0, 0, "");
  Report(1, 0, "b");
  EXPECT_TRUE(run_.is_running());
  Report(0, 1, "a");
  Report(1, 1, "b");
  EXPECT_EQ(run_.phase(), protocol::JobPhase::kFailed);
}

TEST_F(DivergenceCheckTest, AfterARepairTheJobRollsBackInstead) {
  Report(0, 5, "a");
  run_.BeginGeneration(&effects_);
  Report(1, 5, "b");
  EXPECT_TRUE(run_.is_recovering());
}

TEST_F(DivergenceCheckTest, ADifferenceInACheckpointEndsTheJobAlsoAfterARepair) {
  Report(0, 5, "a");
  CompleteCheckpoint(10);
  check_.CheckpointComplete(10);
  run_.BeginGeneration(&effects_);
  Report(1, 5, "b");
  EXPECT_EQ(run_.phase(), protocol::JobPhase::kFailed);
}

TEST_F(DivergenceCheckTest, TheHashesOfATermAreForgottenWithIt) {
  Report(0, 5, "a");
  run_.RollBack("a loss", now_, &effects_);
  effects_.clear();
  Start();
  Report(0, 5, "b");
  Report(1, 5, "b");
  EXPECT_TRUE(run_.is_running());
}

}  // namespace
}  // namespace sluice::server
