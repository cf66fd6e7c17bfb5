// SPDX-License-Identifier: Apache-2.0
// Tests that a job with relays and checkpoints ends with the parameters of an undisturbed run, bit
// for bit, whichever process is lost.
#include <gtest/gtest.h>

#include "tests/relay/relay_job.h"

namespace sluice::relay {
namespace {

class RelaySurvivalTest : public RelayJob {
 protected:
  RelaySurvivalTest() {
    steps_ = 50;
    job_.relays.uplink = *compress::ParseCodecSpec("int8");
    job_.exchange.compression.uplink = *compress::ParseCodecSpec("topk:5%+int4/ef");
    job_.exchange.compression.downlink = *compress::ParseCodecSpec("topk:10%/ef");
  }
  std::vector<Model> Undisturbed() {
    job_.checkpoint = protocol::CheckpointSpec();
    std::vector<Model> expected = Run();
    EXPECT_EQ(failure(), absl::OkStatus());
    job_.checkpoint.dir = absl::StrCat(servers_.folder(), "/checkpoints");
    job_.checkpoint.interval = 10;
    job_.checkpoint.replay_limit = replay_limit_;
    return expected;
  }
  // Compares only parameters. Statistics may differ, because they are also averaged at checkpoints,
  // and the undisturbed run has no checkpoints.
  void ExpectSame(const std::vector<Model>& ended, const std::vector<Model>& expected) {
    EXPECT_EQ(failure(), absl::OkStatus());
    for (size_t rank = 0; rank < ended.size(); ++rank) {
      EXPECT_TRUE(ended[rank].parameters == expected[rank].parameters) << rank;
    }
    for (const auto& outcome : ended_) {
      ASSERT_TRUE(outcome.has_value());
      EXPECT_TRUE(outcome->ok()) << *outcome;
    }
  }

  // Loses relay 1 in the middle of the job.
  void ExpectRelayIsReplaced() {
    const std::vector<Model> expected = Undisturbed();
    lose_ = [this] {
      LoseRelay(1);
      StartRelay(1);
    };
    ExpectSame(Run(), expected);
    EXPECT_TRUE(restored_);
  }

  uint64_t replay_limit_ = protocol::CheckpointSpec().replay_limit;
};

TEST_F(RelaySurvivalTest, CheckpointsAloneChangeNothing) {
  const std::vector<Model> expected = Undisturbed();
  bool called = false;
  lose_ = [&] { called = true; };
  ExpectSame(Run(), expected);
  EXPECT_TRUE(called);
  EXPECT_FALSE(restored_);
}

TEST_F(RelaySurvivalTest, ARelayThatIsLost) { ExpectRelayIsReplaced(); }

TEST_F(RelaySurvivalTest, ARelayThatIsLostWhileTheShardsUpdate) {
  job_.optimizer = {
      .name = "sgd", .lr = kRate, .momentum = 0.5, .location = job::UpdateLocation::kShards};
  ExpectRelayIsReplaced();
}

// Only the shards know the order of updates, so the whole job rolls back.
TEST_F(RelaySurvivalTest, ARelayThatIsLostInSsp) {
  job_.exchange.mode = job::Mode::kSsp;
  job_.exchange.staleness = 2;
  job_.optimizer = {.name = "sgd", .lr = kRate, .location = job::UpdateLocation::kShards};
  job_.checkpoint.dir = absl::StrCat(servers_.folder(), "/checkpoints");
  job_.checkpoint.interval = 10;
  lose_ = [this] {
    LoseRelay(1);
    StartRelay(1);
  };
  const std::vector<Model> ended = Run();
  EXPECT_EQ(failure(), absl::OkStatus());
  EXPECT_TRUE(restored_);
  EXPECT_GE(rollbacks_, 1u);
  EXPECT_EQ(ended[1].parameters, ended[0].parameters);
  EXPECT_EQ(ended[3].parameters, ended[2].parameters);
}

// A relay that joins again must find the plans of its rack's checkpoint and those of the results
// that the servers kept.
TEST_F(RelaySurvivalTest, ARelayThatIsLostWhilePlansChange) {
  job_.exchange.compression.downlink = *compress::ParseCodecSpec("none");
  job_.exchange.control.policy = job::PolicyKind::kSchedule;
  job_.exchange.control.schedule = {
      .kind = job::ScheduleKind::kCyclic, .start = 0.5, .end = 0.05, .steps = 12, .stages = 3};
  ExpectRelayIsReplaced();
}

TEST_F(RelaySurvivalTest, AShardThatIsLostDuringLocalSteps) {
  job_.exchange.mode = job::Mode::kLocalSgd;
  job_.local = {.steps = 2, .outer_lr = 0.7, .outer_momentum = 0.5};
  const std::vector<Model> expected = Undisturbed();
  lose_ = [this] { servers_.Restart(1); };
  ExpectSame(Run(), expected);
}

TEST_F(RelaySurvivalTest, TheRelayOfTheFirstRank) {
  const std::vector<Model> expected = Undisturbed();
  lose_ = [this] {
    LoseRelay(0);
    StartRelay(0);
  };
  ExpectSame(Run(), expected);
  EXPECT_TRUE(restored_);
}

TEST_F(RelaySurvivalTest, AWorkerOfARack) {
  const std::vector<Model> expected = Undisturbed();
  lose_ = [this] { lose_worker_ = true; };
  ExpectSame(Run(), expected);
  EXPECT_TRUE(restored_);
}

TEST_F(RelaySurvivalTest, AShardOfTheServers) {
  const std::vector<Model> expected = Undisturbed();
  lose_ = [this] { servers_.Restart(1); };
  ExpectSame(Run(), expected);
}

TEST_F(RelaySurvivalTest, TheCoordinator) {
  const std::vector<Model> expected = Undisturbed();
  lose_ = [this] { servers_.Restart(0); };
  ExpectSame(Run(), expected);
}

TEST_F(RelaySurvivalTest, BothRelaysAndAShard) {
  const std::vector<Model> expected = Undisturbed();
  lose_ = [this] {
    LoseRelay(0);
    LoseRelay(1);
    servers_.Restart(1);
    StartRelay(1);
    StartRelay(0);
  };
  ExpectSame(Run(), expected);
  EXPECT_TRUE(restored_);
}

TEST_F(RelaySurvivalTest, WhereNothingIsKeptAllGoBack) {
  replay_limit_ = 0;
  const std::vector<Model> expected = Undisturbed();
  lose_ = [this] {
    LoseRelay(1);
    StartRelay(1);
  };
  ExpectSame(Run(), expected);
  EXPECT_TRUE(restored_);
  EXPECT_GE(rollbacks_, 1u);
}

}  // namespace
}  // namespace sluice::relay
