// SPDX-License-Identifier: Apache-2.0
#include "server/control/slowest_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/control/link_estimate.h"

namespace sluice::server {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

protocol::LinkFigures Link(double up, double down, double latency_s = 0.001) {
  return {.up_rate = up, .up_latency_s = latency_s, .down_rate = down, .down_latency_s = latency_s};
}

TEST(SlowestStream, ComparesTheTimeOfEachShardsBytes) {
  // Shard 1 has half as many elements, and rank 0's link to it is ten times slower.
  const std::vector<SlowestStream> slowest = SlowestStreams({
      {.elements = 1000, .ranks = {Link(1e9, 2e9), Link(1e8, 1e8)}},
      {.elements = 500, .ranks = {Link(1e8, 1e8, 0.021), Link(1e9, 2e9)}},
  });
  ASSERT_EQ(slowest.size(), 2u);
  EXPECT_DOUBLE_EQ(slowest[0].up_times, 5);
  EXPECT_DOUBLE_EQ(slowest[0].down_times, 10);
  EXPECT_DOUBLE_EQ(slowest[0].up_later_s, 0.02);
  EXPECT_DOUBLE_EQ(slowest[0].down_later_s, 0.02);
  EXPECT_EQ(slowest[1], SlowestStream());
}

TEST(SlowestStream, ConnectionsThatShareALinkUnevenlyCountAsEqual) {
  EXPECT_THAT(SlowestStreams({{.elements = 1000, .ranks = {Link(1e8, 1e8)}},
                              {.elements = 1000, .ranks = {Link(0.7e8, 1.3e8)}}}),
              ElementsAre(SlowestStream()));
}

TEST(SlowestStream, UnknownRatesDoNotCount) {
  EXPECT_THAT(SlowestStreams({}), IsEmpty());
  EXPECT_THAT(SlowestStreams({{.elements = 1000, .ranks = {Link(0, 1e9), Link(1e9, 1e9)}},
                              {.elements = 1000, .ranks = {Link(1e8, 0)}},
                              {.elements = 0, .ranks = {}}}),
              ElementsAre(SlowestStream(), SlowestStream()));
}

TEST(SlowestStream, CorrectsWhatAPolicyReadsFromTransfers) {
  StepMeasurements measured;
  measured.ranks = {
      {.up = {{.bytes = 10'000'000, .seconds = 0.011}, {.bytes = 64, .seconds = 0.001}}},
      {.up = {{.bytes = 10'000'000, .seconds = 0.011}}}};
  ApplySlowestStreams({{{.up_times = 10, .up_later_s = 0.02}}}, &measured);
  LinkEstimate estimate;
  for (int step = 0; step < 10; ++step) estimate.AddStep(measured.ranks[0].up);
  EXPECT_THAT(estimate.rate(), DoubleNear(1e8, 1e6));
  EXPECT_THAT(estimate.latency_s(), DoubleNear(0.021, 1e-4));
  EXPECT_EQ(measured.ranks[1].up[0].bytes, 10'000'000u) << "rank 1 has no correction";
}

}  // namespace
}  // namespace sluice::server
