// SPDX-License-Identifier: Apache-2.0
#include "server/control/measurements.h"

#include <gtest/gtest.h>

namespace sluice::server {
namespace {

RankMeasurements Arrived(double arrival_s, double compute_s) {
  RankMeasurements rank;
  rank.arrival_s = arrival_s;
  rank.compute_s = compute_s;
  return rank;
}

TEST(Lateness, OfAStragglerThatComputesIsItsOwn) {
  const auto late = SplitLateness({Arrived(0.10, 0.08), Arrived(0.16, 0.14)});
  EXPECT_NEAR(late[1].compute_s, 0.06, 1e-12);
  EXPECT_NEAR(late[1].network_s, 0, 1e-12);
  EXPECT_EQ(late[0].compute_s, 0);
  EXPECT_EQ(late[0].network_s, 0);
}

TEST(Lateness, BehindASlowLinkIsTheNetworks) {
  const auto late = SplitLateness({Arrived(0.10, 0.08), Arrived(0.16, 0.08)});
  EXPECT_NEAR(late[1].compute_s, 0, 1e-12);
  EXPECT_NEAR(late[1].network_s, 0.06, 1e-12);
}

TEST(Lateness, OfBothIsSplitAndAddsUp) {
  const auto late = SplitLateness({Arrived(0.16, 0.10), Arrived(0.10, 0.08), Arrived(0.11, 0.20)});
  EXPECT_NEAR(late[0].compute_s, 0.02, 1e-12);
  EXPECT_NEAR(late[0].network_s, 0.04, 1e-12);
  // Rank 2's additional compute time exceeds its delay, because its link is fast. Its network delay
  // must then be 0, not negative.
  EXPECT_NEAR(late[2].compute_s, 0.01, 1e-12);
  EXPECT_NEAR(late[2].network_s, 0, 1e-12);
}

TEST(Lateness, OfNobodyIsNothing) { EXPECT_TRUE(SplitLateness({}).empty()); }

}  // namespace
}  // namespace sluice::server
