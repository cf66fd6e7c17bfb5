// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/lease_watch.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/job_run_fixture.h"

namespace sluice::server {
namespace {

class LeaseWatchTest : public JobRunTest {
 protected:
  using JobRunTest::JobRunTest;
  void Hear(uint32_t shard) { run_.fleet().Health(11 + shard, {.results_from = 1}, now_); }

  LeaseWatch leases_{&run_, now_};
};

TEST_F(LeaseWatchTest, AJobThatWaitsTooLongNamesTheMissingProcesses) {
  Seat(0);
  now_ += run_.options().server.join_timeout - absl::Seconds(1);
  leases_.CheckJoins(now_, &effects_);
  EXPECT_FALSE(run_.ended());
  now_ += absl::Seconds(1);
  leases_.CheckJoins(now_, &effects_);
  EXPECT_EQ(run_.failure(),
            "waited 1m: rank 1 and shard 0, 1 did not join; start them, or raise "
            "server.join_timeout");
}

TEST_F(LeaseWatchTest, TheTimeOfASuspensionDoesNotCount) {
  now_ += run_.options().server.join_timeout;
  leases_.Tick(now_, &effects_);
  EXPECT_EQ(Events(), Texts{"stood_still"});
  leases_.CheckJoins(now_, &effects_);
  EXPECT_FALSE(run_.ended());
  now_ += run_.options().server.lease_timeout / 4;
  leases_.Tick(now_, &effects_);
  EXPECT_EQ(Events(), Texts{"stood_still"});
  EXPECT_EQ(leases_.last_tick(), now_);
}

TEST_F(LeaseWatchTest, TheJobWaitsForALostProcessThatItCanRepair) {
  Start();
  now_ += run_.options().server.lease_timeout;
  for (const uint32_t rank : {0u, 1u}) Report(rank);
  Hear(0);
  leases_.AwaitLost(now_, &effects_);
  EXPECT_TRUE(run_.is_running());
  EXPECT_TRUE(run_.fleet()[1].lost);
  EXPECT_EQ(Events(), Texts{"lost"});
  EXPECT_EQ(EffectsOf<RefuseShard>().size(), 1u);
  now_ += run_.options().server.rejoin_timeout;
  for (const uint32_t rank : {0u, 1u}) Report(rank);
  Hear(0);
  leases_.AwaitLost(now_, &effects_);
  EXPECT_TRUE(run_.failure().starts_with("waited 10m: shard 1 (h:7071)")) << run_.failure();
}

TEST_F(LeaseWatchTest, ALossThatCannotBeRepairedIsARollback) {
  Start();
  protocol::WorkerHeartbeat heartbeat = BeatOf(0);
  heartbeat.replay_from = 5;
  run_.roster().ReportFiles(heartbeat);
  now_ += run_.options().server.lease_timeout;
  for (const uint32_t rank : {0u, 1u}) Report(rank);
  leases_.AwaitLost(now_, &effects_);
  EXPECT_TRUE(run_.is_recovering());
}

TEST_F(LeaseWatchTest, AnExpiredLeaseIsARollbackIfNothingIsRepaired) {
  Start();
  now_ += run_.options().server.lease_timeout;
  Report(0);
  for (const uint32_t shard : {0u, 1u}) Hear(shard);
  leases_.CheckLeases(now_, &effects_);
  EXPECT_TRUE(run_.is_recovering());
}

class EndingLeaseTest : public LeaseWatchTest {
 protected:
  EndingLeaseTest() : LeaseWatchTest(WithoutCheckpoints()) {}
};

TEST_F(EndingLeaseTest, WithoutCheckpointsAnExpiredLeaseEndsTheJob) {
  Start();
  now_ += run_.options().server.lease_timeout - absl::Seconds(1);
  leases_.CheckLeases(now_, &effects_);
  EXPECT_TRUE(run_.is_running());
  now_ += absl::Seconds(1);
  leases_.CheckLeases(now_, &effects_);
  EXPECT_EQ(run_.phase(), protocol::JobPhase::kFailed);
  EXPECT_TRUE(run_.failure().ends_with("; the job cannot continue without it")) << run_.failure();
}

}  // namespace
}  // namespace sluice::server
