// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace sluice::planning {
namespace {

// Sends messages and returns the time of arrival of each.
class NetworkTest : public ::testing::Test {
 protected:
  void Make(const Cluster& cluster, uint32_t workers, uint32_t shards) {
    network_ = std::make_unique<Network>(cluster, workers, shards, &queue_);
  }
  std::map<uint32_t, double> Run() {
    std::map<uint32_t, double> arrived;
    while (!queue_.empty()) {
      const Event event = queue_.Take();
      if (event.kind == EventKind::kDelivered) {
        arrived[event.what] = ToSeconds(queue_.now());
      } else {
        network_->Handle(event);
      }
    }
    return arrived;
  }

  EventQueue queue_;
  std::unique_ptr<Network> network_;
};

constexpr double kRate = 80e6;  // The links' rate.
constexpr double kBytesPerSecond = kRate / 8 * kTcpShare;

TEST_F(NetworkTest, AMessageCrossesTwoLinksAtTheRateOfTheSlowerOne) {
  Make({.worker = {.up_bps = kRate, .latency_s = 0.01}, .shard = {.down_bps = 3 * kRate}}, 1, 1);
  network_->Send(0, 1, 10'000'000, 1);
  EXPECT_NEAR(Run()[1], 1e7 / kBytesPerSecond + 0.01, 0.003);
}

// A bucket passes a burst at once. Then the link has its rate until the bucket fills again.
TEST_F(NetworkTest, AnIdleLinkPassesABurst) {
  Make({.worker = {.up_bps = kRate, .burst_bytes = 1e6}}, 1, 1);
  network_->Send(0, 1, 1'000'000, 1);
  network_->Send(0, 1, 4'000'000, 2);
  std::map<uint32_t, double> arrived = Run();
  EXPECT_NEAR(arrived[1], 0, 0.01);
  EXPECT_NEAR(arrived[2], 4e6 / kBytesPerSecond, 0.01);
}

TEST_F(NetworkTest, FlowsShareALinkAndMessagesOfAFlowDoNot) {
  Make({.shard = {.down_bps = kRate}}, 2, 1);
  network_->Send(0, 2, 5'000'000, 1);
  network_->Send(0, 2, 5'000'000, 2);
  network_->Send(1, 2, 5'000'000, 3);
  std::map<uint32_t, double> arrived = Run();
  const double one = 5e6 / kBytesPerSecond;
  // Flows 1 and 3 each have half of the link, and then 2 has all of it.
  EXPECT_NEAR(arrived[1], 2 * one, 0.02);
  EXPECT_NEAR(arrived[3], 2 * one, 0.02);
  EXPECT_NEAR(arrived[2], 3 * one, 0.02);
}

TEST_F(NetworkTest, SmallMessagesPassOneAfterAnother) {
  Make({.shard = {.up_bps = kRate}}, 3, 1);
  for (uint32_t worker = 0; worker < 3; ++worker) network_->Send(3, worker, 20'000, worker);
  std::map<uint32_t, double> arrived = Run();
  for (uint32_t worker = 0; worker < 3; ++worker) {
    EXPECT_NEAR(arrived[worker], (worker + 1) * 2e4 / kBytesPerSecond, 1e-6);
  }
}

TEST_F(NetworkTest, EveryByteArrivesOnce) {
  Make({.worker = {.up_bps = kRate, .down_bps = kRate, .latency_s = 0.001},
        .shard = {.up_bps = kRate, .down_bps = 2 * kRate},
        .racks = 3,
        .rack = {.up_bps = kRate / 2, .down_bps = kRate, .latency_s = 0.02, .loss = 0.001}},
       5, 4);
  uint32_t sent = 0;
  for (uint32_t worker = 0; worker < 5; ++worker) {
    for (uint32_t shard = 5; shard < 9; ++shard) {
      network_->Send(worker, shard, 1 + 123'457 * (worker + 1) * (shard - 4), sent++);
      network_->Send(shard, worker, 77'777 * (worker + 1), sent++);
    }
  }
  EXPECT_EQ(Run().size(), sent);
  EXPECT_EQ(network_->bytes_delivered(), network_->bytes_sent());
  uint64_t up = 0;
  uint64_t down = 0;
  for (uint32_t machine = 0; machine < network_->machines(); ++machine) {
    up += network_->up(machine).bytes;
    down += network_->down(machine).bytes;
  }
  EXPECT_EQ(up, network_->bytes_sent());
  EXPECT_EQ(down, network_->bytes_sent());
}

}  // namespace
}  // namespace sluice::planning
