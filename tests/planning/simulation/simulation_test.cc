// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "planning/simulation/network.h"
#include "planning/simulation/outages.h"
#include "tests/planning/simulation/job.h"

namespace sluice::planning {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;

TEST(SimulationTest, WithoutLimitsAStepIsItsComputing) {
  const SimulationReport report = MustSimulate(SpecOf(2, 1));
  EXPECT_EQ(report.step_s.count, 2u * 8);
  EXPECT_NEAR(report.step_s.p50, 0.1, 1e-9);
  EXPECT_NEAR(report.step_s.max, 0.1, 1e-9);
  EXPECT_NEAR(report.wait_s.max, 0, 1e-9);
}

// Two workers, one shard, one bundle of 1 MiB: the shard's link carries both contributions and then
// both results.
TEST(SimulationTest, TwoWorkersTakeTheTimeOfTheShardsLink) {
  SimulationSpec spec = SpecOf(2, 1);
  spec.cluster.shard = {.up_bps = 100e6, .down_bps = 100e6};
  const SimulationReport report = MustSimulate(spec);
  const double message = 4 * (4.0 * 65536 + 20);
  const double seconds = 2 * 2 * message * 8 / (100e6 * kTcpShare);
  EXPECT_THAT(report.steps[0].max_s, DoubleNear(0.1 + seconds, 0.001));
  // The worker that gets its last segment first begins its next step earlier by one segment.
  const double segment = kSegmentBytes * 8 / (100e6 * kTcpShare);
  EXPECT_THAT(report.step_s.p50, DoubleNear(0.1 + seconds, 1.01 * segment));
  EXPECT_THAT(report.bytes_up, DoubleNear(message, 1000));
  EXPECT_THAT(report.bytes_down, DoubleNear(message, 1000));
}

// The gradients of the second half of the elements are ready halfway, so the bundles overlap with
// computing.
TEST(SimulationTest, OverlapHidesAllButTheLastBundle) {
  SimulationSpec spec = SpecOf(1, 1);
  spec.table = TensorsOf(10, 1 << 18);
  spec.cluster.worker = {.up_bps = 1e9, .down_bps = 1e9};
  spec.compute_s = 1;
  const double all = 10 * 4.0 * (1 << 18) * 8 / (1e9 * kTcpShare);
  EXPECT_THAT(MustSimulate(spec).step_s.p50, DoubleNear(1 + all + all / 10, 0.005));
  spec.overlap = 1;
  EXPECT_THAT(MustSimulate(spec).step_s.p50, DoubleNear(1 + 2 * all / 10, 0.005));
}

TEST(SimulationTest, LatencyCountsOnceForEachDirection) {
  SimulationSpec spec = SpecOf(2, 1);
  spec.cluster.worker = {.latency_s = 0.010};
  spec.cluster.shard = {.latency_s = 0.005};
  EXPECT_NEAR(MustSimulate(spec).step_s.p50, 0.1 + 2 * 0.015, 1e-6);
}

TEST(SimulationTest, ProcessorsTakeTheTimeOfTheCosts) {
  SimulationSpec spec = SpecOf(2, 1);
  spec.costs.message_us = 1000;
  // A worker's request, its receipt and a PENDING, the second worker's receipt, two results one
  // after the other, and the receipt of the second.
  EXPECT_NEAR(MustSimulate(spec).steps[0].max_s, 0.1 + 7e-3, 1e-6);
}

TEST(SimulationTest, LossLimitsTheRateOfAConnection) {
  SimulationSpec spec = SpecOf(1, 1);
  spec.cluster.worker = {.up_bps = 1e9, .down_bps = 1e9, .latency_s = 0.02, .loss = 0.01};
  const double limit = ConnectionLimit(0.04, 0.01);
  EXPECT_NEAR(limit, 8 * 1448 / 0.04 * std::sqrt(1.5 / 0.01), 1e-3);
  const double message = 4 * (4.0 * 65536 + 20);
  EXPECT_NEAR(MustSimulate(spec).step_s.p50, 0.1 + 0.04 + 2 * message * 8 / (limit * kTcpShare),
              0.05);
}

TEST(SimulationTest, RacksShareTheirLinks) {
  SimulationSpec spec = SpecOf(4, 1);
  spec.cluster.racks = 2;
  spec.cluster.rack = {.up_bps = 100e6, .down_bps = 100e6, .latency_s = 0.02};
  // The shard is in rack 0 with workers 0 and 2. Workers 1 and 3 share the link of rack 1.
  const double message = 4 * (4.0 * 65536 + 20);
  EXPECT_NEAR(MustSimulate(spec).steps[0].max_s,
              0.1 + 2 * (2 * 0.02 + 2 * message * 8 / (100e6 * kTcpShare)), 0.002);
}

TEST(SimulationTest, AMachineOfAWorkerAndAShardHasOneLink) {
  SimulationSpec spec = SpecOf(2, 2);
  spec.table = TensorsOf(2, 1 << 18);
  spec.cluster.worker = {.up_bps = 100e6, .down_bps = 100e6};
  spec.cluster.colocated = true;
  // Each machine sends one contribution to the other one, and then one result.
  const double message = 4 * (4.0 * 65536 + 20);
  const SimulationReport report = MustSimulate(spec);
  EXPECT_THAT(report.step_s.p50, DoubleNear(0.1 + 2 * message * 8 / (100e6 * kTcpShare), 0.012));
  EXPECT_EQ(report.links.size(), 2u);
}

TEST(SimulationTest, TheSlowestWorkerSetsTheStepTimeOfSync) {
  SimulationSpec spec = SpecOf(8, 2);
  spec.cluster.stragglers.slow = {{.worker = 3, .factor = 4}};
  const SimulationReport report = MustSimulate(spec);
  EXPECT_NEAR(report.step_s.p50, 0.4, 1e-6);
  EXPECT_NEAR(report.bundle_wait_s, 0.3, 1e-6);
}

TEST(SimulationTest, AQuorumHidesAStraggler) {
  SimulationSpec spec = SpecOf(8, 2, "quorum: 7\nstraggler_timeout: 10ms");
  spec.cluster.stragglers.slow = {{.worker = 3, .factor = 4}};
  const SimulationReport report = MustSimulate(spec);
  EXPECT_NEAR(report.step_s.p50, 0.11, 1e-6);
  EXPECT_GT(report.quorum_bundles, 0u);
  EXPECT_GT(report.late_contributions, 0u);
}

TEST(SimulationTest, AsynchronousWorkersDoNotWaitForAStraggler) {
  SimulationSpec spec = SpecOf(4, 1, "mode: async");
  spec.job.optimizer.location = job::UpdateLocation::kShards;
  spec.cluster.stragglers.slow = {{.worker = 3, .factor = 5}};
  const SimulationReport report = MustSimulate(spec);
  EXPECT_NEAR(report.step_s.p50, 0.1, 1e-6);
  EXPECT_NEAR(report.step_s.max, 0.5, 1e-6);
}

TEST(SimulationTest, StreamingHidesTheExchange) {
  const std::string keys = "mode: local_sgd\nlocal_steps: 8\nfragments: 2\nfragment_delay: ";
  SimulationSpec spec = SpecOf(2, 1, keys + "0");
  spec.table = TensorsOf(2, 1 << 18);
  spec.cluster.worker = {.up_bps = 100e6, .down_bps = 100e6};
  EXPECT_GT(MustSimulate(spec).step_s.p50, 0.5);
  spec = SpecOf(2, 1, keys + "3");
  spec.table = TensorsOf(2, 1 << 18);
  spec.cluster.worker = {.up_bps = 100e6, .down_bps = 100e6};
  EXPECT_NEAR(MustSimulate(spec).step_s.p50, 0.4, 1e-6);
}

TEST(SimulationTest, EqualSeedsGiveEqualReports) {
  SimulationSpec spec = SpecOf(5, 3);
  spec.cluster.stragglers.sigma = 0.2;
  spec.cluster.worker = {.up_bps = 50e6, .down_bps = 70e6, .latency_s = 0.003};
  const SimulationReport first = MustSimulate(spec);
  const SimulationReport again = MustSimulate(spec);
  spec.cluster.seed = 2;
  const SimulationReport other = MustSimulate(spec);
  EXPECT_EQ(first.step_s.mean, again.step_s.mean);
  EXPECT_EQ(first.seconds, again.seconds);
  EXPECT_EQ(first.events, again.events);
  EXPECT_NE(first.step_s.mean, other.step_s.mean);
}

TEST(SimulationTest, AnOutageStopsAJobWithFixedMembership) {
  SimulationSpec spec = SpecOf(3, 1);
  spec.cluster.outages = {{.begin_s = 0.45, .end_s = 1.45, .worker = 1}};
  const SimulationReport report = MustSimulate(spec);
  EXPECT_EQ(report.outages, 1u);
  EXPECT_NEAR(report.seconds, 10 * 0.1 + 0.95, 1e-6);
}

TEST(SimulationTest, AnElasticJobWaitsForTheLeaseOnly) {
  SimulationSpec spec = SpecOf(3, 2,
                               "membership: elastic\nmin_workers: 1\nmax_workers: 3\n"
                               "checkpoint: {dir: unused, interval: 10}");
  spec.steps = 200;
  spec.cluster.outages = {{.begin_s = 0.45, .end_s = 14, .worker = 1}};
  const SimulationReport report = MustSimulate(spec);
  EXPECT_EQ(report.outages, 1u);
  // Steps continue when the lease of 10 s ends, and three workers take the last steps.
  EXPECT_NEAR(report.seconds, 200 * 0.1 + 9.95, 0.1);
  EXPECT_EQ(report.steps[20].workers, 2u);
  EXPECT_EQ(report.steps.back().workers, 3u);
}

TEST(SimulationTest, AJobThatWaitsForeverIsAnError) {
  SimulationSpec spec = SpecOf(3, 1);
  spec.cluster.outages = {{.begin_s = 0.45, .end_s = 1e12, .worker = 1}};
  spec.events_max = 1000;
  EXPECT_THAT(Simulate(spec).status().message(), HasSubstr("1 workers are down for good"));
}

TEST(SimulationTest, AWorkerThatATraceDoesNotBringBackIsDownForGood) {
  SimulationSpec spec = SpecOf(3, 1);
  const absl::StatusOr<std::vector<Outage>> outages = ParseOutages("0.45 1 down\n", 3);
  ASSERT_TRUE(outages.ok()) << outages.status();
  spec.cluster.outages = *outages;
  EXPECT_THAT(Simulate(spec).status().message(), HasSubstr("1 workers are down for good"));
}

TEST(SimulationTest, TooManyEventsAreAnError) {
  SimulationSpec spec = SpecOf(8, 2);
  spec.events_max = 100;
  const absl::Status status = Simulate(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("after 100 events"));
}

TEST(SimulationTest, WrongSpecsAreErrors) {
  SimulationSpec spec = SpecOf(2, 1);
  spec.compute_s = -1;
  EXPECT_THAT(Simulate(spec).status().message(), HasSubstr("-1 s"));
  spec = SpecOf(2, 1);
  spec.overlap = 1.5;
  EXPECT_THAT(Simulate(spec).status().message(), HasSubstr("1.5"));
  spec = SpecOf(2, 1);
  spec.cluster.worker.loss = 1;
  EXPECT_THAT(Simulate(spec).status().message(), HasSubstr("loss"));
  spec = SpecOf(2, 1);
  spec.cluster.stragglers.slow = {{.worker = 2, .factor = 2}};
  EXPECT_THAT(Simulate(spec).status().message(), HasSubstr("straggler 2"));
  spec = SpecOf(2, 1);
  spec.warmup = spec.steps;
  EXPECT_THAT(Simulate(spec).status().message(), HasSubstr("warm-up"));
}

// ResNet-50's size with 1,000 workers and 64 shards.
TEST(SimulationTest, AThousandWorkers) {
  SimulationSpec spec = SpecOf(1000, 64, "", "uplink: topk:1%+int4, downlink: topk:3%+int4");
  spec.table = TensorsOf(160, 160'000);
  spec.costs = {};
  spec.cluster.worker = {.up_bps = 1e9, .down_bps = 1e9, .latency_s = 50e-6};
  spec.cluster.shard = spec.cluster.worker;
  spec.steps = 3;
  spec.warmup = 1;
  const SimulationReport report = MustSimulate(spec);
  EXPECT_EQ(report.contributions, 3u * 1000 * 64);
  EXPECT_EQ(report.bundles_closed, 3u * 64);
  // Each shard sends its part of every result and a record of 1,000 ranks to 1,000 workers.
  EXPECT_GT(report.step_s.p50, 0.1 + 0.2);
  EXPECT_LT(report.step_s.p50, 0.1 + 0.6);
}

}  // namespace
}  // namespace sluice::planning
