// SPDX-License-Identifier: Apache-2.0
#include "planning/simulation/goodput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planning/simulation/outages.h"

namespace sluice::planning {
namespace {

Goodput MustSimulate(const GoodputSpec& spec) {
  const absl::StatusOr<Goodput> goodput = SimulateGoodput(spec);
  if (!goodput.ok()) ADD_FAILURE() << goodput.status();
  return goodput.value_or(Goodput());
}

GoodputSpec Small() {
  return {.workers = 4,
          .step_s = 1,
          .duration_s = 1000,
          .lease_s = 10,
          .restart_s = 20,
          .checkpoint_s = 100,
          .local_steps = 10,
          .delay_steps = 5,
          .quorum = 0.5,
          .grace_s = 2,
          .outages = {}};
}

TEST(GoodputTest, WithoutFailuresAllIsUseful) {
  const Goodput goodput = MustSimulate(Small());
  EXPECT_DOUBLE_EQ(goodput.plain, 1);
  EXPECT_DOUBLE_EQ(goodput.elastic, 1);
  EXPECT_DOUBLE_EQ(goodput.quorate, 1);
}

TEST(GoodputTest, OneFailureByHand) {
  GoodputSpec spec = Small();
  spec.outages = {{.begin_s = 250.5, .end_s = 300.5, .worker = 2}};
  const Goodput goodput = MustSimulate(spec);
  // The work since the checkpoint at 200 s is lost, and training continues at 320.5 s.
  EXPECT_NEAR(goodput.plain, (200 + 1000 - 320.5) / 1000, 1e-9);
  // The step from 250 s on closes at 260.5 s; the worker is back in the step from 300.5 s on. A
  // last step begins before the end.
  const double steps = 250 + 1 + 739.5 + 0.5;
  EXPECT_NEAR(goodput.elastic, (4 * steps - 41) / (4 * 1000.5), 1e-3);
  // The others do not wait: the exchange that ends at 260 s closes with a quorum in the slack.
  EXPECT_NEAR(goodput.quorate, (4 * 1000 - 60) / (4 * 1000.0), 1e-9);
}

TEST(GoodputTest, AQuorumThatIsLostWaitsForTheLeases) {
  GoodputSpec spec = Small();
  spec.delay_steps = 0;
  for (uint32_t worker = 0; worker < 3; ++worker) {
    spec.outages.push_back({.begin_s = 255, .end_s = 700, .worker = worker});
  }
  // One worker of four is no quorum, so the exchange ends with the leases at 265 s, not at 262 s.
  const Goodput goodput = MustSimulate(spec);
  EXPECT_LT(goodput.quorate, (4 * 1000 - 3 * 445.0) / 4000);
}

// The published order of the three, at a scale that no machine of ours has. The failures are
// frequent enough that the differences show.
TEST(GoodputTest, TenThousandWorkersHaveThePublishedOrder) {
  GoodputSpec spec;
  spec.duration_s = 7200;
  const absl::StatusOr<std::vector<Outage>> outages =
      DrawOutages({.mtbf_s = 100 * 3600, .repair_s = 600}, spec.workers, spec.duration_s, 1);
  ASSERT_TRUE(outages.ok()) << outages.status();
  spec.outages = *outages;
  const Goodput goodput = MustSimulate(spec);
  EXPECT_GT(goodput.quorate, goodput.elastic);
  EXPECT_GT(goodput.elastic, goodput.plain);
  EXPECT_GT(goodput.quorate, 0.9);
}

TEST(GoodputTest, WrongSpecsAreErrors) {
  GoodputSpec spec = Small();
  spec.delay_steps = 10;
  EXPECT_FALSE(SimulateGoodput(spec).ok());
  spec = Small();
  spec.outages = {{.begin_s = 1, .end_s = 2, .worker = 4}};
  EXPECT_FALSE(SimulateGoodput(spec).ok());
  spec = Small();
  spec.step_s = 1e-9;
  EXPECT_EQ(SimulateGoodput(spec).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sluice::planning
