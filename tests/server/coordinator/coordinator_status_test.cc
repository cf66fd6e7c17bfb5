// SPDX-License-Identifier: Apache-2.0
// Tests the figures in the status of a job.
#include <gtest/gtest.h>

#include "server/coordinator/coordinator.h"
#include "tests/server/coordinator/coordinator_fixture.h"

namespace sluice::server {
namespace {

TEST_F(CoordinatorTest, StatusShowsMembersAndShards) {
  StartJob();
  protocol::WorkerHeartbeat beat = BeatOf(1);
  beat.progress.step = 17;
  ASSERT_TRUE(Beat(beat).ok());
  now_ += absl::Seconds(2);
  const JobStatus status = coordinator_.Status(now_);
  EXPECT_EQ(status.phase, protocol::JobPhase::kRunning);
  EXPECT_EQ(status.members.at(1).progress.step, 17u);
  EXPECT_EQ(status.members.at(1).since_heartbeat, absl::Seconds(2));
  EXPECT_TRUE(status.shards.at(0).attached);
}

TEST_F(CoordinatorTest, StatusShowsWhereTimeWent) {
  StartJob();
  protocol::WorkerHeartbeat beat = BeatOf(1);
  beat.timings = {.steps = 4, .compute_seconds = 3, .exchange_seconds = 2};
  ASSERT_TRUE(Beat(beat).ok());
  coordinator_.ShardHealth(11, {.waited_seconds = {0.5, 1, 99}}, now_);
  coordinator_.ShardHealth(12, {.waited_seconds = {0.5, 2}}, now_);
  const JobStatus status = coordinator_.Status(now_);
  EXPECT_EQ(status.members.at(1).timings.steps, 4u);
  EXPECT_EQ(status.members.at(1).timings.compute_seconds, 3);
  EXPECT_EQ(status.members.at(1).waited_seconds, 1.5) << "the shards wait at the same time";
}

TEST_F(CoordinatorTest, StatusShowsTheSlowestLinkEachWay) {
  StartJob();
  const protocol::LinkFigures unknown;
  const protocol::LinkFigures one{
      .up_rate = 5, .up_latency_s = 0.5, .down_rate = 9, .down_latency_s = 0.9};
  const protocol::LinkFigures other{
      .up_rate = 7, .up_latency_s = 0.7, .down_rate = 8, .down_latency_s = 0.8};
  coordinator_.ShardHealth(11, {.links = {unknown, one}}, now_);
  coordinator_.ShardHealth(12, {.links = {unknown, other, other, other}}, now_);
  const JobStatus status = coordinator_.Status(now_);
  EXPECT_EQ(status.members.at(0).link.up_rate, 0);
  const protocol::LinkFigures& link = status.members.at(1).link;
  EXPECT_EQ(link.up_rate, 5);
  EXPECT_EQ(link.up_latency_s, 0.5);
  EXPECT_EQ(link.down_rate, 8);
  EXPECT_EQ(link.down_latency_s, 0.8);
}

TEST_F(CoordinatorTest, StreamsAreThoseOfEachShard) {
  StartJob();
  coordinator_.ShardHealth(12, {.elements = 20, .links = {{.up_rate = 7}}}, now_);
  coordinator_.ShardHealth(11, {.elements = 10, .links = {{.up_rate = 5}}}, now_);
  const std::vector<ShardStreams> streams = coordinator_.Streams();
  ASSERT_EQ(streams.size(), 2u);
  EXPECT_EQ(streams[0].elements, 10u);
  EXPECT_EQ(streams[0].ranks.at(0).up_rate, 5);
  EXPECT_EQ(streams[1].elements, 20u);
  EXPECT_EQ(streams[1].ranks.at(0).up_rate, 7);
}

}  // namespace
}  // namespace sluice::server
