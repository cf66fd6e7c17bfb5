// SPDX-License-Identifier: Apache-2.0
#include "protocol/link_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.h"

namespace sluice::protocol {
namespace {

constexpr double kLatencyS = 0.02;
constexpr double kRate = 12.5e6;  // 100 Mbit/s.

int64_t Ns(double seconds) { return std::llround(1e9 * seconds); }

// A simulated link that sends messages, one after another, to a meter. The receiver's clock is
// ahead of the sender's by `offset_s`. Both clocks are far from 0.
class Link {
 public:
  explicit Link(double offset_s = 0) : offset_s_(offset_s) {}

  // Sends a message. `at` is the time in seconds at which the message is ready to send. `late_s` is
  // the receiver's delay in reading it.
  void Send(double at, uint64_t bytes, bool probe = false, double late_s = 0) {
    free_ = std::max(free_, at) + static_cast<double>(bytes) / rate;
    meter_.Came(bytes, static_cast<uint64_t>(Ns(1e5 + at)),
                Ns(1e5 + offset_s_ + free_ + latency_s + late_s), probe);
  }
  std::vector<LinkPeriod> Take() { return meter_.Take(); }
  double free() const { return free_; }

  double rate = kRate;
  double latency_s = kLatencyS;

 private:
  const double offset_s_;
  double free_ = 0;
  LinkMeter meter_;
};

double RateOf(const LinkPeriod& period) {
  return static_cast<double>(period.bytes) / period.seconds;
}

TEST(LinkMeter, MeasuresABusyPeriodWhateverTheClocksAndTheLatency) {
  for (const double offset_s : {0.0, 1e4, -9e4}) {
    for (const double latency_s : {0.0, 0.0005, 0.3}) {
      Link link(offset_s);
      link.latency_s = latency_s;
      link.Send(1, 30, /*probe=*/true);
      // The first two messages are sent at once, and the others while earlier bytes are still in
      // flight, so the link is never idle.
      for (const double at : {2.0, 2.0, 2.001, 2.07}) link.Send(at, 500'000);
      const std::vector<LinkPeriod> periods = link.Take();
      ASSERT_EQ(periods.size(), 1);
      EXPECT_EQ(periods[0].bytes, 2'000'000);
      EXPECT_NEAR(RateOf(periods[0]) / kRate, 1, 1e-3) << offset_s << ' ' << latency_s;
    }
  }
}

TEST(LinkMeter, TimeInWhichNothingWasReadyIsInNoPeriod) {
  Link link;
  link.Send(1, 30, true);
  link.Send(2, 1'000'000);  // This message takes 80 ms.
  link.Send(2.5, 500'000);
  link.Send(3.5, 250'000);
  link.Send(3.5, 250'000);
  const std::vector<LinkPeriod> periods = link.Take();
  ASSERT_EQ(periods.size(), 3);
  for (const LinkPeriod& period : periods) EXPECT_NEAR(RateOf(period) / kRate, 1, 1e-3);
  EXPECT_EQ(periods[0].bytes, 1'000'000) << "the largest period comes first";
  EXPECT_TRUE(link.Take().empty());
}

TEST(LinkMeter, ARateThatChangesIsSeenAtOnce) {
  Link link;
  link.Send(1, 30, true);
  link.Send(2, 1'000'000);
  EXPECT_NEAR(RateOf(link.Take().at(0)) / kRate, 1, 1e-3);
  link.rate = kRate / 10;
  link.Send(3, 1'000'000);
  EXPECT_NEAR(RateOf(link.Take().at(0)) / kRate, 0.1, 1e-3);
  link.rate = kRate * 3;
  link.Send(5, 1'000'000);
  EXPECT_NEAR(RateOf(link.Take().at(0)) / kRate, 3, 1e-2);
}

TEST(LinkMeter, BeforeAProbeNothingIsKnown) {
  Link link;
  link.Send(1, 1'000'000);
  link.Send(2, 1'000'000);
  EXPECT_TRUE(link.Take().empty())
      << "without a probe, the latency would include a megabyte's transfer";
}

// The latency of the route increases. Until the meter has dropped the earlier probes, rates may be
// too low. After that, they must be right again.
TEST(LinkMeter, FollowsALatencyThatGrows) {
  Link link;
  link.Send(1, 30, true);
  link.latency_s = 0.1;
  double at = 2;
  for (size_t i = 0; i < LinkMeter::kProbes; ++i, at += 1) {
    link.Send(at, 30, true);
    link.Send(at + 0.5, 1'000'000);
    const double rate = RateOf(link.Take().at(0));
    EXPECT_LE(rate, kRate * 1.001);
    EXPECT_GE(rate, kRate * 0.49);
  }
  link.Send(at + 0.5, 1'000'000);
  EXPECT_NEAR(RateOf(link.Take().at(0)) / kRate, 1, 1e-3);
}

// The receiver pauses before it reads. One period may then be too slow, but later periods must be
// right.
TEST(LinkMeter, AReceiverThatStoodStillSpoilsOnePeriod) {
  Link link;
  link.Send(1, 30, true);
  link.Send(2, 30, true, /*late_s=*/5);
  link.Send(8, 1'000'000, false, /*late_s=*/5);
  EXPECT_LT(RateOf(link.Take().at(0)), kRate / 10);
  link.Send(14, 1'000'000);
  EXPECT_NEAR(RateOf(link.Take().at(0)) / kRate, 1, 1e-3);
}

TEST(LinkMeter, KeepsTheLargestAndTheSmallestOfMany) {
  Link link;
  link.Send(1, 30, true);
  for (int i = 0; i < 100; ++i) link.Send(2 + i, static_cast<uint64_t>(1000 + (i * 37) % 100));
  const std::vector<LinkPeriod> periods = link.Take();
  ASSERT_EQ(periods.size(), LinkReport::kPeriodsMax);
  EXPECT_EQ(periods[0].bytes, 1099);
  EXPECT_EQ(periods[1].bytes, 1098);
  EXPECT_EQ(periods[2].bytes, 1097);
  EXPECT_EQ(periods[3].bytes, 1000);
}

// A peer's times are untrusted, so the meter must accept any numbers.
TEST(LinkMeter, TakesAnyTimes) {
  CounterRandom random(1, 2);
  LinkMeter meter;
  int64_t came = 0;
  for (int i = 0; i < 20'000; ++i) {
    uint64_t ready = static_cast<uint64_t>(random.Uniform() * 1.8e19);
    if (i % 3 == 0)
      ready = static_cast<uint64_t>(came) + static_cast<uint64_t>(random.Uniform() * 1e9);
    if (i % 7 == 0) ready = std::numeric_limits<uint64_t>::max() - static_cast<uint64_t>(i);
    came += static_cast<int64_t>(random.Uniform() * 1e8);
    meter.Came(static_cast<uint64_t>(random.Uniform() * 1e6), ready, came, i % 11 == 0);
    if (i % 50 != 0) continue;
    const std::vector<LinkPeriod> periods = meter.Take();
    EXPECT_LE(periods.size(), LinkReport::kPeriodsMax);
    for (const LinkPeriod& period : periods) {
      EXPECT_GT(period.seconds, 0);
      EXPECT_TRUE(std::isfinite(period.seconds));
    }
  }
}

}  // namespace
}  // namespace sluice::protocol
