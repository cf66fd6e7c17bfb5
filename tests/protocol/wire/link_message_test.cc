// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/link_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/protocol/wire/unset_fields.h"

namespace sluice::protocol {
namespace {

TEST(LinkMessageTest, ReportsOfLinksTravelBounded) {
  const LinkReport report{.step = 7,
                          .round_trip_s = 0.25,
                          .down = {{.bytes = 100, .seconds = 0.5}, {.bytes = 10, .seconds = 0.125}},
                          .compute_s = 1,
                          .encode_s = 2,
                          .apply_s = 3,
                          .exposed_s = 4,
                          .tested = 0.75};
  v1::LinkReport message;
  LinkReportToProto(report, &message);
  EXPECT_THAT(UnsetFields(message), ::testing::IsEmpty());
  EXPECT_EQ(LinkReportFromProto(message), report);

  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  message.set_round_trip_ns(kHuge);
  message.set_compute_ns(kHuge);
  message.add_down_bytes(kHuge);  // These bytes have no matching time.
  for (int i = 0; i < 1000; ++i) {
    message.add_down_ns(i % 2 == 0 ? kHuge : 1);
    message.add_down_bytes(kHuge);
  }
  message.set_tested(1.5);
  const LinkReport taken = LinkReportFromProto(message);
  EXPECT_FALSE(taken.tested.has_value());
  message.set_tested(std::nan(""));
  EXPECT_FALSE(LinkReportFromProto(message).tested.has_value());
  EXPECT_EQ(taken.round_trip_s, 0);
  EXPECT_EQ(taken.compute_s, 0);
  EXPECT_EQ(taken.encode_s, 2);
  ASSERT_EQ(taken.down.size(), 3u)
      << "one of the first four periods is invalid: it lasts 584 years";
  EXPECT_EQ(taken.down[2].seconds, 1e-9);
}

}  // namespace
}  // namespace sluice::protocol
