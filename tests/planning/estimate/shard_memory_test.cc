// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/shard_memory.h"

#include <gtest/gtest.h>

#include "planning/estimate/traffic.h"
#include "tests/planning/estimate/samples.h"

namespace sluice::planning {
namespace {

ShardMemory Memory(const Scenario& scenario) {
  const absl::StatusOr<Traffic> traffic = TrafficOf(scenario, UsualFigures());
  EXPECT_TRUE(traffic.ok()) << traffic.status();
  return MemoryOf(scenario, *traffic);
}

Scenario Million(const char* codec) {
  Scenario scenario = DenseMillion(4, 2);
  scenario.up = Spec(codec);
  scenario.down = scenario.up;
  return scenario;
}

// The rows of docs/sizing.md with 25.6 million parameters.
TEST(ShardMemory, AgreesWithTheTableOfSizes) {
  Scenario scenario = Million("topk:1%+int4");
  scenario.model.elements = 25.6e6;
  scenario.shards = 4;
  EXPECT_NEAR(Memory(scenario).program + Memory(scenario).sums, 60e6, 1e6);
  EXPECT_NEAR(Memory(scenario).waiting, 0.4e6, 0.05e6);
  scenario.up = Spec("int8");
  EXPECT_NEAR(Memory(scenario).program + Memory(scenario).sums, 73e6, 1e6);
  EXPECT_NEAR(Memory(scenario).waiting, 26e6, 1e6);
}

TEST(ShardMemory, HasTheStateOfCodecs) {
  EXPECT_EQ(Memory(Million("int8")).codec, 0);
  EXPECT_EQ(Memory(Million("eden:2/diana")).codec, 4 * 0.5e6);
  EXPECT_EQ(Memory(Million("topk:1%+int4/ef21")).codec, 4 * 0.5e6);
}

TEST(ShardMemory, KeepsResultsForRepairsAndStragglers) {
  Scenario scenario = Million("int8");
  EXPECT_EQ(Memory(scenario).results, 0);
  EXPECT_EQ(Memory(scenario).during_checkpoint(), Memory(scenario).training());
  scenario.quorum = true;
  EXPECT_EQ(Memory(scenario).results, 256 << 20);
  scenario.quorum = false;
  scenario.checkpoints = true;
  scenario.replay_limit_bytes = 5e6;
  EXPECT_EQ(Memory(scenario).results, 5e6);
  EXPECT_EQ(Memory(scenario).during_checkpoint(), Memory(scenario).training() + 8 * 0.5e6);
}

TEST(ShardMemory, HasTheOptimizerOfTheShards) {
  Scenario scenario = Million("int8");
  scenario.optimizer_state_bytes = 8;
  EXPECT_EQ(Memory(scenario).parameters, 0);
  scenario.optimizer_on_shards = true;
  EXPECT_EQ(Memory(scenario).parameters, 16 * 0.5e6);
}

}  // namespace
}  // namespace sluice::planning
