// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/traffic.h"

#include <gtest/gtest.h>

#include "tests/planning/estimate/samples.h"

namespace sluice::planning {
namespace {

Traffic Bytes(const Scenario& scenario) {
  const absl::StatusOr<Traffic> traffic = TrafficOf(scenario, FreeProcessors());
  EXPECT_TRUE(traffic.ok()) << traffic.status();
  return traffic.value_or(Traffic{});
}

TEST(Traffic, OfShardsWithMachinesOfTheirOwn) {
  const Traffic traffic = Bytes(DenseMillion(4, 2));
  EXPECT_EQ(traffic.up, 4e6);
  EXPECT_EQ(traffic.down, 4e6);
  EXPECT_EQ(traffic.link_out_up, 4e6);
  EXPECT_EQ(traffic.link_in_down, 4e6);
  EXPECT_EQ(traffic.link_in_up, 0);
  EXPECT_EQ(traffic.shard_in, 8e6);
  EXPECT_EQ(traffic.shard_out, 8e6);
  EXPECT_EQ(traffic.egress, 32e6);
}

TEST(Traffic, StaysOnAMachineThatHasAWorkerAndAShard) {
  Scenario scenario = DenseMillion(4, 4);
  scenario.placement = Placement::kWithWorkers;
  const Traffic traffic = Bytes(scenario);
  EXPECT_EQ(traffic.link_out_up, 3e6);    // To three other shards, a megabyte each.
  EXPECT_EQ(traffic.link_out_down, 3e6);  // The shard's results for three other workers.
  EXPECT_EQ(traffic.link_in_up, 3e6);
  EXPECT_EQ(traffic.link_in_down, 3e6);
  EXPECT_EQ(traffic.shard_in, 0);
  EXPECT_EQ(traffic.egress, 4 * 6e6);
}

TEST(Traffic, OfTheBusiestLinkIfShardsAreUneven) {
  Scenario scenario = DenseMillion(2, 3);
  scenario.placement = Placement::kWithWorkers;
  const Traffic traffic = Bytes(scenario);  // Two shards with one worker, one with the other.
  EXPECT_NEAR(traffic.link_out_down, 4e6 * 2 / 3, 1);
  EXPECT_NEAR(traffic.egress, 8e6, 1);  // Each worker's other third or two thirds, both ways.
}

TEST(Traffic, OfASiteAddsUpUnlessItHasARelay) {
  Scenario scenario = DenseMillion(8, 1);
  scenario.sites = 2;
  EXPECT_EQ(Bytes(scenario).link_out_up, 16e6);
  EXPECT_EQ(Bytes(scenario).shard_in, 32e6);
  scenario.relays = true;
  const Traffic traffic = Bytes(scenario);
  EXPECT_EQ(traffic.link_out_up, 4e6);
  EXPECT_EQ(traffic.shard_in, 8e6);
  EXPECT_EQ(traffic.relay_up, 1e6);    // int8
  EXPECT_EQ(traffic.relay_down, 4e6);  // The relay passes results on without loss.
  EXPECT_EQ(traffic.egress, 2 * 8e6);
}

TEST(Traffic, OfAnExchangeCoversOneFragment) {
  Scenario scenario = DenseMillion(4, 2);
  scenario.local = {.steps = 8, .fragments = 4};
  EXPECT_EQ(Bytes(scenario).up, 1e6);
}

TEST(Traffic, SendsSmallTensorsAsHalves) {
  const ModelSize model = {.name = "m", .elements = 1000, .tensors = 2, .small_elements = 200};
  const MachineFigures machine = FreeProcessors();
  EXPECT_EQ(*BytesOf(Spec("int8"), machine, model, 1000), 800 * 1 + 200 * 2);
  EXPECT_EQ(*BytesOf(Spec("none"), machine, model, 1000), 4000);
  EXPECT_EQ(*BytesOf(Spec("int8"), machine, model, 500), 400 * 1 + 100 * 2);
}

TEST(Traffic, NeedsKnownCodecs) {
  Scenario scenario = DenseMillion(4, 2);
  scenario.down = Spec("powersgd:4");
  EXPECT_FALSE(TrafficOf(scenario, FreeProcessors()).ok());
}

}  // namespace
}  // namespace sluice::planning
