// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cli/doctor/doctor_service.h"
#include "cli/doctor/exchange_forecast.h"
#include "cli/doctor/rate_meter.h"
#include "tests/cli/doctor/marks.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DoctorFindings GoodFindings() {
  DoctorFindings findings;
  findings.peer = "10.0.0.1:7070";
  findings.here = findings.there = {"0.2.0", 4096};
  findings.round_trip_seconds = 0.02;
  findings.sent_bytes_per_second = 1e6;
  findings.received_bytes_per_second = 4e6;
  return findings;
}

TEST(DoctorChecksTest, EachCheckFailsAlone) {
  EXPECT_EQ(MarksOf(GoodFindings()), "ok ok ok ok ok ok ok ok ");
  DoctorFindings findings = GoodFindings();
  findings.reaches_peer = absl::UnavailableError("blocked");
  EXPECT_EQ(MarksOf(findings), "failed ok ok ok ok ok ok ok ");
  findings = GoodFindings();
  findings.reached_by_peer = absl::UnavailableError("blocked");
  EXPECT_EQ(MarksOf(findings), "ok failed ok ok ok ok ok ok ");
  findings = GoodFindings();
  findings.there.version = "0.1.0";
  EXPECT_EQ(MarksOf(findings), "ok ok failed ok ok ok ok ok ");
  findings = GoodFindings();
  findings.round_trip_seconds = 0;
  EXPECT_EQ(MarksOf(findings), "ok ok ok failed ok ok ok ok ");
  findings.round_trip_seconds = 2;
  EXPECT_EQ(MarksOf(findings), "ok ok ok warning ok ok ok ok ");
  findings = GoodFindings();
  findings.sent_bytes_per_second = 0;
  findings.received_bytes_per_second = 1000;
  EXPECT_EQ(MarksOf(findings), "ok ok ok ok failed warning ok ok ");
  findings = GoodFindings();
  findings.there.descriptors = 1023;
  EXPECT_EQ(MarksOf(findings), "ok ok ok ok ok ok warning ok ");
  findings = GoodFindings();
  findings.peer_ahead_seconds = -1e6;  // Only reported.
  EXPECT_EQ(MarksOf(findings), "ok ok ok ok ok ok ok ok ");
}

TEST(DoctorChecksTest, LinesNameValuesAndRemedies) {
  DoctorFindings findings = GoodFindings();
  findings.there.version = "0.1.0";
  findings.reached_by_peer = absl::UnavailableError("blocked\x1b[2J\n");
  const std::vector<DoctorCheck> checks = ChecksOf(findings);
  EXPECT_THAT(FormatCheck(checks[1]),
              AllOf(HasSubstr("blocked\\x1b[2J\\n"), HasSubstr("open the port here")));
  EXPECT_THAT(FormatCheck(checks[2]),
              HasSubstr("0.2.0 here and 0.1.0 there; use one build everywhere"));
  EXPECT_THAT(FormatCheck(checks[4]), HasSubstr("1 MB/s (8 Mbit/s)"));
  EXPECT_THAT(FormatCheck(checks[6]), HasSubstr("4096 here, 4096 there"));
}

TEST(DoctorChecksTest, FiguresOfTheOtherMachineAreBounded) {
  EXPECT_EQ(SaneFigure(3.5, 10), 3.5);
  for (const double wrong : {-1.0, 11.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(SaneFigure(wrong, 10), 0) << wrong;
  }
}

TEST(RateMeterTest, OmitsTheStartOfACompleteMeasurement) {
  const absl::Time begin = absl::UnixEpoch() + absl::Hours(1);
  DoctorLimits limits;
  RateMeter meter(limits);
  EXPECT_EQ(meter.bytes_per_second(), 0);
  meter.Add(100, begin);
  EXPECT_EQ(meter.bytes_per_second(), 0);  // A single block has no rate.
  meter.Add(100, begin + absl::Milliseconds(500));
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 200);  // What arrived after the first block.
  meter.Add(100, begin + absl::Seconds(1));
  for (int i = 11; i <= 30; ++i) {
    EXPECT_FALSE(meter.full());
    meter.Add(500, begin + absl::Milliseconds(100 * i));
  }
  EXPECT_TRUE(meter.full());
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 5000);
}

TEST(RateMeterTest, IsFullAfterTheBytes) {
  DoctorLimits limits;
  limits.bytes = 1000;
  RateMeter meter(limits);
  meter.Add(600, absl::UnixEpoch());
  EXPECT_FALSE(meter.full());
  meter.Add(600, absl::UnixEpoch() + absl::Milliseconds(1));
  EXPECT_TRUE(meter.full());
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 600e3);
}

TEST(ExchangeForecastTest, TimesFollowFromRatesAndBits) {
  DoctorFindings findings = GoodFindings();
  const std::vector<ForecastRow> rows = ForecastExchange(findings, 1'000'000);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].uplink, "none");
  // 4 MB at 1 MB/s, 4 MB at 4 MB/s, and the round trip; headers add less than 1 %.
  EXPECT_NEAR(rows[0].seconds, 4 + 1 + 0.02, 0.05);
  EXPECT_NEAR(rows[1].seconds, 2.5 + 0.02, 0.05);
  EXPECT_NEAR(rows[2].seconds, 1.25 + 0.02, 0.02);
  // After the first steps, ResNet-50 as a whole has 0.128 and 0.316 bits (`sluice bench codecs`).
  EXPECT_NEAR(rows[3].uplink_bits, 0.128, 0.03);
  EXPECT_NEAR(rows[3].downlink_bits, 0.316, 0.04);
  EXPECT_LT(rows[3].seconds, rows[2].seconds / 5);
  EXPECT_THAT(FormatForecast(rows, 1'000'000),
              AllOf(HasSubstr("1000000 parameters"), HasSubstr("topk:1%+int4")));
  findings.sent_bytes_per_second = 0;
  EXPECT_TRUE(ForecastExchange(findings, 1'000'000).empty());
}

}  // namespace
}  // namespace sluice::cli
