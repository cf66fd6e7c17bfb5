// SPDX-License-Identifier: Apache-2.0
#include "server/control/link_estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/random.h"

namespace sluice::server {
namespace {

constexpr double kMega = 1e6;

double Normal(CounterRandom* random) {
  const double radius = std::sqrt(-2 * std::log(1 - random->Uniform()));
  return radius * std::cos(2 * std::numbers::pi * random->Uniform());
}

// Returns the transfers of six bundles and a heartbeat. They send about `bytes` in total.
std::vector<Transfer> Step(double bytes, double rate, double latency_s,
                           CounterRandom* random = nullptr, double noise = 0) {
  std::vector<Transfer> transfers;
  for (const double share : {0.3, 0.25, 0.2, 0.12, 0.08, 0.05, 1e-5}) {
    const double size = std::max(bytes * share, 64.0);
    double seconds = latency_s + size / rate;
    if (random != nullptr) seconds *= std::exp(noise * Normal(random));
    transfers.push_back({static_cast<uint64_t>(size), seconds, false});
  }
  return transfers;
}

TEST(LinkEstimate, TellsLatencyFromRate) {
  for (const double latency_s : {0.0, 0.001, 0.02, 0.1}) {
    for (const double rate : {1.25 * kMega, 125 * kMega, 1250 * kMega}) {
      LinkEstimate link;
      EXPECT_FALSE(link.known());
      for (int step = 0; step < 12; ++step) link.AddStep(Step(rate * 0.05, rate, latency_s));
      EXPECT_NEAR(link.latency_s(), latency_s, 1e-4) << rate;
      EXPECT_NEAR(link.rate() / rate, 1, 0.01) << latency_s;
    }
  }
}

TEST(LinkEstimate, HasNoRateBeforeItsFirstStep) {
  const LinkEstimate link;
  EXPECT_FALSE(link.known());
  EXPECT_EQ(link.rate_now(), 0);
  EXPECT_EQ(link.rate_recent(), 0);
}

TEST(LinkEstimate, IsNearUnderNoise) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CounterRandom random(seed);
    LinkEstimate link;
    double sum = 0;
    for (int step = 0; step < 132; ++step) {
      link.AddStep(Step(5 * kMega, 125 * kMega, 0.010, &random, 0.1));
      if (step < 32) continue;
      EXPECT_NEAR(link.latency_s(), 0.010, 0.002) << "seed " << seed << " step " << step;
      EXPECT_NEAR(link.rate_recent() / (125 * kMega), 1, 0.5) << "seed " << seed;
      sum += link.rate_recent() / (125 * kMega);
    }
    EXPECT_NEAR(sum / 100, 1, 0.15) << "seed " << seed;
  }
}

// The estimate must not depend on the bytes sent: it must neither fall if the sender sends less nor
// rise if it sends more.
TEST(LinkEstimate, DoesNotDependOnWhatIsSent) {
  for (const double bytes : {10 * kMega, 1 * kMega, 0.1 * kMega}) {
    LinkEstimate link;
    for (int step = 0; step < 12; ++step) link.AddStep(Step(bytes, 125 * kMega, 0.050));
    EXPECT_NEAR(link.rate() / (125 * kMega), 1, 0.02) << bytes;
  }
}

TEST(LinkEstimate, FallsFastAndRisesSlowly) {
  LinkEstimate link;
  for (int step = 0; step < 40; ++step) link.AddStep(Step(5 * kMega, 1250 * kMega, 0.002));
  link.AddStep(Step(5 * kMega, 125 * kMega, 0.002));
  EXPECT_NEAR(link.rate_now() / (125 * kMega), 1, 0.05);
  EXPECT_NEAR(link.rate() / (1250 * kMega), 1, 0.05) << "a single odd step has no effect";
  link.AddStep(Step(5 * kMega, 125 * kMega, 0.002));
  EXPECT_NEAR(link.rate() / (125 * kMega), 1, 0.05) << "two slow steps change the estimate";
  for (int step = 0; step < 20; ++step) link.AddStep(Step(5 * kMega, 125 * kMega, 0.002));
  int steps = 0;
  while (link.rate() < 1000 * kMega) {
    link.AddStep(Step(5 * kMega, 1250 * kMega, 0.002));
    ASSERT_LT(++steps, 20);
  }
  EXPECT_GE(steps, 5);
  EXPECT_LE(steps, 10);
}

TEST(LinkEstimate, LeavesOutWhatTheSenderHeldUp) {
  LinkEstimate link;
  for (int step = 0; step < 20; ++step) link.AddStep(Step(5 * kMega, 125 * kMega, 0.002));
  const double before = link.rate();
  for (int step = 0; step < 20; ++step) {
    std::vector<Transfer> slow = Step(5 * kMega, 12 * kMega, 0.002);
    for (Transfer& transfer : slow) transfer.sender_limited = true;
    link.AddStep(slow);
  }
  EXPECT_EQ(link.rate(), before);
}

TEST(LinkEstimate, TakesARateThatWasReachedThoughTheSenderHeldItUp) {
  LinkEstimate link;
  for (int step = 0; step < 20; ++step) link.AddStep(Step(5 * kMega, 12.5 * kMega, 0.002));
  for (int step = 0; step < 20; ++step) {
    std::vector<Transfer> fast = Step(5 * kMega, 125 * kMega, 0);
    for (Transfer& transfer : fast) transfer.sender_limited = true;
    link.AddStep(fast);
  }
  EXPECT_GT(link.rate_now(), 100 * kMega);
}

TEST(LinkEstimate, PassesOverWhatCannotBe) {
  LinkEstimate link;
  link.AddStep({});
  link.AddStep(std::vector<Transfer>{{0, 1, false},
                                     {5, 0, false},
                                     {5, -1, false},
                                     {5, std::numeric_limits<double>::quiet_NaN(), false},
                                     {5, std::numeric_limits<double>::infinity(), false}});
  EXPECT_FALSE(link.known());
  EXPECT_EQ(link.rate(), 0);
  // Transfers of equal size give a rate, but no latency.
  link.AddStep(std::vector<Transfer>{{1000, 0.001, false}, {1000, 0.001, false}});
  EXPECT_EQ(link.latency_s(), 0);
  EXPECT_NEAR(link.rate(), kMega, 1);
}

}  // namespace
}  // namespace sluice::server
