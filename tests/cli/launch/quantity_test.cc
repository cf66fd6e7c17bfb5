// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace sluice::cli {
namespace {

TEST(ParseBitRateTest, ReadsUnits) {
  EXPECT_EQ(*ParseBitRate("100mbit"), 1e8);
  EXPECT_EQ(*ParseBitRate("1gbit"), 1e9);
  EXPECT_EQ(*ParseBitRate("2.5Gbit"), 2.5e9);
  EXPECT_EQ(*ParseBitRate("800kbit"), 8e5);
  EXPECT_EQ(*ParseBitRate("64000bit"), 64000);
}

TEST(ParseBitRateTest, RefusesWhatIsNoRate) {
  for (const char* text : {"", "100", "mbit", "100MB", "-1mbit", "0mbit", "nanmbit", "1e30gbit",
                           "1kbit", "100 mbit/s", "infgbit"}) {
    EXPECT_EQ(ParseBitRate(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(FormatTest, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(9.2 * 1024), "9.20 KiB");
  EXPECT_EQ(FormatBytes(999.4 * 1024), "999 KiB");
  EXPECT_EQ(FormatBytes(999.6 * 1024), "0.98 MiB");
  EXPECT_EQ(FormatBytes(45.6 * (1 << 20)), "45.6 MiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<double>::quiet_NaN()), "-");
}

TEST(FormatTest, Ratios) {
  EXPECT_EQ(FormatRatio(0.97), "0.97x");
  EXPECT_EQ(FormatRatio(12.34), "12.3x");
  EXPECT_EQ(FormatRatio(203.4), "203x");
  EXPECT_EQ(FormatRatio(0), "-");
  EXPECT_EQ(FormatRatio(std::numeric_limits<double>::infinity()), "-");
}

TEST(FormatTest, ElapsedTimes) {
  EXPECT_EQ(FormatElapsed(absl::ZeroDuration()), "0:00");
  EXPECT_EQ(FormatElapsed(absl::Seconds(62.9)), "1:02");
  EXPECT_EQ(FormatElapsed(absl::Hours(1) + absl::Seconds(123)), "1:02:03");
  EXPECT_EQ(FormatElapsed(absl::InfiniteDuration()), "-");
  EXPECT_EQ(FormatElapsed(-absl::Seconds(1)), "-");
}

}  // namespace
}  // namespace sluice::cli
