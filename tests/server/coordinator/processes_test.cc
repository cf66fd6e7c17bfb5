// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/processes.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/server/coordinator/coordinator_fixture.h"

namespace sluice::server {
namespace {

// Two ranks and two shards.
class ProcessesTest : public ::testing::Test {
 protected:
  static CoordinatorOptions ExampleOptions() {
    CoordinatorOptions options;
    options.world_size = 2;
    options.shards = 2;
    return options;
  }

  const absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  const CoordinatorOptions options_ = ExampleOptions();
  Roster roster_{options_};
  ShardFleet fleet_{2, /*coordinator_incarnation=*/1};
  CoordinatorEffects effects_;
};

TEST_F(ProcessesTest, MissingWorkersAreNamedBeforeMissingShards) {
  EXPECT_EQ(MissingProcesses(roster_, fleet_), "rank 0, 1 and shard 0, 1");
  roster_.Seat(1, JoinOf(0), now_);
  fleet_.Attach(11, ArrivalOf(0), now_, &effects_);
  EXPECT_EQ(MissingProcesses(roster_, fleet_), "rank 1 and shard 1");
  roster_.Seat(2, JoinOf(1), now_);
  fleet_.Attach(12, ArrivalOf(1), now_, &effects_);
  EXPECT_EQ(MissingProcesses(roster_, fleet_), "");
}

TEST_F(ProcessesTest, LostShardsAreNamedBeforeLostWorkers) {
  for (const uint32_t rank : {0u, 1u}) roster_.Seat(rank + 1, JoinOf(rank), now_);
  roster_.BeginTerm(0, now_);
  EXPECT_EQ(LostProcesses(roster_, fleet_), "");
  LossReport loss(options_.server.lease_timeout);
  EXPECT_TRUE(roster_.MarkLost(now_ + options_.server.lease_timeout, &loss));
  fleet_.Attach(11, ArrivalOf(0), now_, &effects_);
  fleet_.MarkLost(0);
  EXPECT_EQ(LostProcesses(roster_, fleet_),
            "shard 0 (h:7070) and rank 0 (host a, pid 120) and rank 1 (host a, pid 121)");
}

TEST_F(ProcessesTest, TheStatusHasEveryRankAndShard) {
  roster_.Seat(2, JoinOf(1), now_);
  fleet_.Attach(11, ArrivalOf(0), now_, &effects_);
  JobStatus status;
  AddProcesses(roster_, fleet_, now_ + absl::Seconds(3), &status);
  ASSERT_EQ(status.members.size(), 2u);
  EXPECT_FALSE(status.members[0].joined);
  EXPECT_EQ(status.members[0].since_heartbeat, absl::ZeroDuration());
  EXPECT_TRUE(status.members[1].joined);
  EXPECT_EQ(status.members[1].rank, 1u);
  EXPECT_EQ(status.members[1].pid, 121u);
  EXPECT_EQ(status.members[1].since_heartbeat, absl::Seconds(3));
  ASSERT_EQ(status.shards.size(), 2u);
  EXPECT_TRUE(status.shards[0].attached);
  EXPECT_EQ(status.shards[0].since_report, absl::Seconds(3));
  EXPECT_FALSE(status.shards[1].attached);
}

TEST_F(ProcessesTest, AWaitLastsAlsoAfterTheLastReport) {
  roster_.Seat(2, JoinOf(1), now_);
  protocol::WorkerHeartbeat heartbeat;
  heartbeat.sender.rank = 1;
  heartbeat.disk_wait = {.what = "its part", .lasts = absl::Seconds(20), .trouble = "no space"};
  roster_.ReportFiles(heartbeat);
  JobStatus status;
  AddWaits(roster_, fleet_, now_ + absl::Seconds(3), &status);
  ASSERT_EQ(status.waits.size(), 1u);
  EXPECT_EQ(status.waits[0].who, "rank 1 (host a, pid 121)");
  EXPECT_EQ(status.waits[0].lasts, absl::Seconds(23));
  EXPECT_EQ(status.waits[0].trouble, "no space");
}

}  // namespace
}  // namespace sluice::server
