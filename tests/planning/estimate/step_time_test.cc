// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/step_time.h"

#include <gtest/gtest.h>

#include <functional>

#include "planning/estimate/estimate.h"
#include "tests/planning/estimate/samples.h"

namespace sluice::planning {
namespace {

StepTime Time(const Scenario& scenario, const MachineFigures& machine = FreeProcessors()) {
  const absl::StatusOr<StepTime> time = StepTimeOf(scenario, machine);
  EXPECT_TRUE(time.ok()) << time.status();
  return time.value_or(StepTime{});
}

Stage One(Resource resource, double seconds, double pieces) {
  return {.loads = {{resource, seconds}}, .seconds = seconds, .pieces = pieces};
}

TEST(Pipeline, TakesTheBusiestStageAndOneBundleOfTheOthers) {
  const std::vector<Stage> stages = {One(Resource::kEncoder, 2, 4), One(Resource::kLinkOut, 10, 5),
                                     One(Resource::kShard, 3, 3)};
  const PipelineTime time = TimeOf(stages);
  EXPECT_DOUBLE_EQ(time.seconds, 10 + 2.0 / 4 + 3.0 / 3);
  EXPECT_EQ(time.busiest, Resource::kLinkOut);
}

TEST(Pipeline, AddsTheStagesThatShareAResource) {
  const std::vector<Stage> stages = {One(Resource::kLinkOut, 4, 2), One(Resource::kShard, 6, 2),
                                     One(Resource::kLinkOut, 5, 2)};
  const PipelineTime time = TimeOf(stages);
  EXPECT_DOUBLE_EQ(time.seconds, 4 + 5 + 6.0 / 2);
  EXPECT_EQ(time.busiest, Resource::kLinkOut);
}

TEST(Pipeline, WaitsForTheSlowestLoadOfAStage) {
  const std::vector<Stage> stages = {
      {.loads = {{Resource::kLinkOut, 1}, {Resource::kShardIn, 8}}, .seconds = 8, .pieces = 4},
      One(Resource::kShard, 2, 1)};
  EXPECT_DOUBLE_EQ(TimeOf(stages).seconds, 8 + 2);
}

TEST(Pipeline, NamesTheBusiestResourceOfASingleBundle) {
  const std::vector<Stage> stages = {One(Resource::kEncoder, 2, 1), One(Resource::kLinkIn, 5, 1)};
  EXPECT_DOUBLE_EQ(TimeOf(stages).seconds, 7);
  EXPECT_EQ(TimeOf(stages).busiest, Resource::kLinkIn);
}

// 4 MB pass a link of 1 MB/s in 4 s, in 4 bundles of 2^18 elements (rounded up).
TEST(StepTime, OfOneWorkerAndOneShardIsThatOfTheLink) {
  const StepTime time = Time(DenseMillion(1, 1));
  EXPECT_NEAR(time.exchange_s, 4 + 4.0 / 4, 1e-9);
  EXPECT_NEAR(time.step_s, time.exchange_s, 1e-9);
  EXPECT_EQ(time.busiest, Resource::kLinkOut);
}

// The bucket of an idle link passes everything at once, but needs 4 s to be full again.
TEST(StepTime, ABurstDoesNotRaiseTheRateInTheLongRun) {
  Scenario scenario = DenseMillion(1, 1);
  scenario.link.burst_bytes = 1e9;
  EXPECT_NEAR(Time(scenario).exchange_s, 0, 1e-9);
  EXPECT_NEAR(Time(scenario).step_s, 4, 1e-9);
  EXPECT_NEAR(Time(scenario).exposed_s, 4, 1e-9);
  scenario.compute_s = 3;
  EXPECT_NEAR(Time(scenario).step_s, 4, 1e-9);
  EXPECT_NEAR(Time(scenario).exposed_s, 1, 1e-9);
  scenario.compute_s = 5;
  EXPECT_NEAR(Time(scenario).step_s, 5, 1e-9);
  scenario.compute_s = 0;
  scenario.local.steps = 8;
  EXPECT_NEAR(Time(scenario).step_s, 0.5, 1e-9);
}

TEST(StepTime, AddsLatencyAndTheFixedCost) {
  Scenario scenario = DenseMillion(1, 1);
  const double before = Time(scenario).step_s;
  scenario.link.latency_s = 0.05;
  EXPECT_NEAR(Time(scenario).step_s, before + 0.1, 1e-9);
  MachineFigures machine = FreeProcessors();
  machine.step_ms = 3;
  EXPECT_NEAR(Time(scenario, machine).step_s, before + 0.103, 1e-9);
}

TEST(StepTime, HidesTransfersBehindTheBackwardPass) {
  Scenario scenario = DenseMillion(1, 1);
  scenario.compute_s = 100;
  scenario.overlap = 0.5;
  // The last of 4 bundles, once up and once down.
  EXPECT_NEAR(Time(scenario).exposed_s, 2, 1e-9);
  EXPECT_NEAR(Time(scenario).step_s, 102, 1e-9);
  EXPECT_EQ(Time(scenario).busiest, Resource::kBackward);
  // Half a second of gradients, then 4 s of transfers; the first bundle is ready after an eighth.
  scenario.compute_s = 1;
  EXPECT_NEAR(Time(scenario).exposed_s, 4 + 1 + 0.125 - 0.5, 1e-9);
}

TEST(StepTime, AppliesAfterTheBackwardPass) {
  Scenario scenario = DenseMillion(1, 1);
  scenario.link.bits_per_second = 1e13;
  scenario.compute_s = 1;
  MachineFigures machine = FreeProcessors();
  machine.codecs["none"].add_ns = 5000;  // 5 s for the elements.
  scenario.workers = 1;
  EXPECT_NEAR(Time(scenario, machine).exposed_s, 5 + 5.0 / 4 + 0.175 - 0.7, 1e-3);
}

// A shard of 4 workers receives 4 times as much as a worker sends. While links are always busy,
// 0.65 x (1 - 1 / 2) of the results wait for uneven senders.
TEST(StepTime, OfManySendersIsThatOfTheShardsLink) {
  const Scenario scenario = DenseMillion(4, 1);
  const double pipeline = 16 + 16.0 / 4;
  EXPECT_NEAR(Time(scenario).exchange_s, pipeline + 0.325 * 16 * 16 / pipeline, 1e-9);
  EXPECT_EQ(Time(scenario).busiest, Resource::kShardIn);
}

// Each of 2 shards sums 2 bundles of 2 workers. Half of the results wait, because the last bundle
// counts already.
TEST(StepTime, OfSeveralShardsWaitsForUnevenStreams) {
  const Scenario scenario = DenseMillion(2, 2);
  const double pipeline = 4 + 4.0 / 2;
  EXPECT_NEAR(Time(scenario).exchange_s, pipeline + 0.5 * 4 * 4 / pipeline, 1e-9);
}

TEST(StepTime, SharesCoresOnOneMachine) {
  Scenario scenario = DenseMillion(4, 1);
  scenario.link.bits_per_second = 1e13;
  MachineFigures machine = FreeProcessors();
  machine.codecs["none"].encode_ns = 1000;  // A second in each worker and in the shard.
  scenario.placement = Placement::kOneMachine;
  EXPECT_NEAR(Time(scenario, machine).exchange_s, 5.0 / 2 + (1 - 0.5) / 4, 1e-3);
  EXPECT_EQ(Time(scenario, machine).busiest, Resource::kMachine);
  scenario.placement = Placement::kSeparate;
  EXPECT_NEAR(Time(scenario, machine).exchange_s, 1 + 1.0 / 4, 1e-3);
}

TEST(StepTime, DividesTheWorkOnElementsAmongThreads) {
  Scenario scenario = DenseMillion(4, 1);
  scenario.link.bits_per_second = 1e13;
  scenario.threads = 4;
  MachineFigures machine = FreeProcessors();
  machine.codecs["none"].encode_ns = 1000;  // A second in each worker and in the shard.
  scenario.placement = Placement::kSeparate;
  EXPECT_NEAR(Time(scenario, machine).exchange_s, 0.25 + 0.25 / 4, 1e-3);
  EXPECT_NEAR(Time(scenario, machine).shard_cpu_s, 1, 1e-3);
  // Each process can keep both cores busy.
  scenario.placement = Placement::kOneMachine;
  EXPECT_NEAR(Time(scenario, machine).exchange_s, 5.0 / 2, 1e-3);
  // Tensors are the work of one thread, half of it in each direction.
  machine.codecs["none"].encode_ns = 0;
  machine.tensor_us = 1e6 / scenario.model.tensors;
  scenario.placement = Placement::kSeparate;
  EXPECT_NEAR(Time(scenario, machine).exchange_s, 0.5 + 0.5 / 4, 1e-3);
}

TEST(StepTime, SubtractsTheBurstOfALink) {
  Scenario scenario = DenseMillion(1, 1);
  scenario.link.burst_bytes = 1e6 / 0.956;
  EXPECT_NEAR(Time(scenario).exchange_s, 3 + 3.0 / 4, 1e-9);
  scenario.link.burst_bytes = 1e9;
  EXPECT_NEAR(Time(scenario).exchange_s, 0, 1e-9);
}

TEST(StepTime, DividesAnExchangeByLocalSteps) {
  Scenario scenario = DenseMillion(1, 1);
  scenario.compute_s = 1;
  scenario.local = {.steps = 10};
  EXPECT_NEAR(Time(scenario).step_s, 1 + 5.0 / 10, 1e-9);
  // Four exchanges of a quarter in 8 steps: each takes 2 s, because it is one bundle.
  scenario.local = {.steps = 8, .fragments = 4};
  EXPECT_NEAR(Time(scenario).step_s, 1 + 4 * 2.0 / 8, 1e-9);
  scenario.local.delay = 1;
  EXPECT_NEAR(Time(scenario).step_s, 1 + 4 * 1.0 / 8, 1e-9);
  scenario.compute_s = 3;
  EXPECT_NEAR(Time(scenario).step_s, 3, 1e-9);
}

TEST(StepTime, RelaysTakeTheBytesOfASiteOnce) {
  Scenario scenario = DenseMillion(8, 1);
  scenario.sites = 2;
  scenario.site_bits_per_second = 1e13;
  scenario.link.bits_per_second = 8e6 / 0.956;
  const double direct = Time(scenario).exchange_s;
  scenario.relays = true;
  const double relayed = Time(scenario).exchange_s;
  EXPECT_NEAR(relayed, Time(DenseMillion(2, 1)).exchange_s, 0.01);
  EXPECT_GT(direct, 3.9 * relayed);
}

// --- What must hold for every scenario ---

void ForEachScenario(const std::function<void(const Scenario&)>& check) {
  for (const char* codec : {"none", "int8", "topk:1%+int4"}) {
    for (const Placement placement :
         {Placement::kSeparate, Placement::kWithWorkers, Placement::kOneMachine}) {
      for (const uint32_t workers : {1, 4, 12}) {
        for (const uint32_t shards : {1, 3, 12}) {
          for (const double compute_s : {0.0, 0.05, 2.0}) {
            Scenario scenario = DenseMillion(workers, shards);
            scenario.model = ResNet50Size();
            scenario.up = scenario.down = Spec(codec);
            scenario.placement = placement;
            scenario.compute_s = compute_s;
            check(scenario);
          }
        }
      }
    }
  }
}

TEST(StepTime, NeverFallsOnASlowerLink) {
  ForEachScenario([](Scenario scenario) {
    double before = 0;
    for (const double rate : {1e11, 1e10, 1e9, 3e8, 1e8, 1e7, 1e6}) {
      scenario.link.bits_per_second = rate;
      const double now = Time(scenario, UsualFigures()).step_s;
      EXPECT_GE(now, before) << rate << " " << scenario.workers << "+" << scenario.shards;
      before = now;
    }
  });
}

TEST(StepTime, NeverFallsWithLatencyComputingOrParameters) {
  ForEachScenario([](const Scenario& scenario) {
    const double before = Time(scenario, UsualFigures()).step_s;
    Scenario changed = scenario;
    changed.link.latency_s = 0.01;
    EXPECT_GE(Time(changed, UsualFigures()).step_s, before);
    changed = scenario;
    changed.compute_s += 0.01;
    EXPECT_GE(Time(changed, UsualFigures()).step_s, before);
    changed = scenario;
    changed.model.elements *= 2;
    changed.model.small_elements *= 2;
    EXPECT_GE(Time(changed, UsualFigures()).step_s, before);
  });
}

TEST(StepTime, IsAtLeastComputingAndTheBusiestLink) {
  ForEachScenario([](const Scenario& scenario) {
    const StepTime time = Time(scenario, UsualFigures());
    EXPECT_GE(time.step_s, scenario.compute_s);
    EXPECT_GT(time.exposed_s, 0);
    const absl::StatusOr<Traffic> traffic = TrafficOf(scenario, UsualFigures());
    ASSERT_TRUE(traffic.ok());
    const double bytes = std::max({traffic->link_out_up + traffic->link_out_down,
                                   traffic->link_in_up + traffic->link_in_down, traffic->shard_in,
                                   traffic->shard_out});
    EXPECT_GE(time.exchange_s, bytes * 8 / scenario.link.bits_per_second);
  });
}

// The exchanges of docs/performance.md and bench/README.md, which were measured on quiet cores. The
// constants of the model were fitted to them, among others.
TEST(StepTime, AgreesWithTheMeasuredExchanges) {
  struct Measured {
    uint32_t workers;
    const char* up;
    const char* down;
    double bits_per_second;
    double milliseconds;
  };
  constexpr double kUnlimited = 1e12;
  const Measured rows[] = {
      {2, "topk:1%+int4", "topk:3%+int4", 1e9, 49},
      {4, "topk:1%+int4", "topk:3%+int4", 1e9, 80},
      {8, "topk:1%+int4", "topk:3%+int4", 1e9, 169},
      {2, "ternary:0.5", "ternary:0.5", 1e9, 115},
      {4, "ternary:0.5", "ternary:0.5", 1e9, 236},
      {8, "ternary:0.5", "ternary:0.5", 1e9, 364},
      {2, "fp16", "fp16", 1e9, 489},
      {4, "fp16", "fp16", 1e9, 1109},
      {8, "fp16", "fp16", 1e9, 2501},
      {2, "none", "none", 1e9, 913},
      {2, "topk:1%+int4", "topk:3%+int4", kUnlimited, 42},
      {4, "topk:1%+int4", "topk:3%+int4", kUnlimited, 74},
      {4, "fp16", "fp16", kUnlimited, 284},
      {2, "none", "none", kUnlimited, 228},
  };
  for (const Measured& row : rows) {
    Scenario scenario = {.model = ResNet50Size(), .workers = row.workers, .shards = 2};
    scenario.up = Spec(row.up);
    scenario.down = Spec(row.down);
    scenario.placement = Placement::kOneMachine;
    scenario.link = {.bits_per_second = row.bits_per_second, .burst_bytes = 256 << 10};
    EXPECT_NEAR(1e3 * Time(scenario, UsualFigures()).exchange_s, row.milliseconds,
                0.15 * row.milliseconds)
        << row.workers << " + 2, " << row.up;
  }
}

// A published comparison: ResNet-50, 8 workers, links of 1 Gb/s, 50 ms of computing. Dense
// gradients take 786 ms for a step, of which 6.4 % are computing. Compressed ones take 72 ms,
// 69.4 %.
TEST(Estimate, ReproducesAndBeatsAPublishedComparison) {
  Scenario scenario = {.model = ResNet50Size(), .workers = 8, .shards = 8};
  scenario.compute_s = 0.05;
  scenario.up = scenario.down = Spec("fp16");
  const absl::StatusOr<Estimate> dense = EstimateOf(scenario, UsualFigures());
  ASSERT_TRUE(dense.ok());
  EXPECT_NEAR(1e3 * dense->time.step_s, 786, 0.15 * 786);
  EXPECT_NEAR(100 * dense->efficiency, 6.4, 1);
  scenario.up = Spec("topk:1%+int4");
  scenario.down = Spec("topk:3%+int4");
  const absl::StatusOr<Estimate> compressed = EstimateOf(scenario, UsualFigures());
  ASSERT_TRUE(compressed.ok());
  EXPECT_LE(1e3 * compressed->time.step_s, 60);
  EXPECT_GE(compressed->efficiency, 0.694);
}

TEST(Estimate, GivesEgressAndCoresOfAStep) {
  Scenario scenario = DenseMillion(4, 1);
  scenario.compute_s = 1;
  scenario.local = {.steps = 10};
  MachineFigures machine = FreeProcessors();
  machine.codecs["none"].encode_ns = 1e6;  // 1000 s of the shard in each exchange.
  machine.codecs["none"].add_ns = 0;
  scenario.link.bits_per_second = 1e13;
  const absl::StatusOr<Estimate> estimate = EstimateOf(scenario, machine);
  ASSERT_TRUE(estimate.ok());
  EXPECT_DOUBLE_EQ(estimate->exchanges_per_step, 0.1);
  EXPECT_DOUBLE_EQ(estimate->egress_per_step, 3.2e6);
  EXPECT_NEAR(estimate->time.shard_cpu_s, 100, 0.1);
  EXPECT_NEAR(estimate->shard_cores, 100 / estimate->time.step_s, 1e-3);
}

}  // namespace
}  // namespace sluice::planning
