// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/link_message.h"

#include <algorithm>
#include <cmath>

namespace sluice::protocol {
namespace {

constexpr double kSecondsMax = 86400;

uint64_t ToNanoseconds(double seconds) {
  return static_cast<uint64_t>(std::llround(1e9 * std::clamp(seconds, 0.0, kSecondsMax)));
}

double FromNanoseconds(uint64_t ns) {
  const double seconds = 1e-9 * static_cast<double>(ns);
  return seconds <= kSecondsMax ? seconds : 0;
}

}  // namespace

void LinkReportToProto(const LinkReport& report, v1::LinkReport* message) {
  message->set_step(report.step);
  message->set_round_trip_ns(ToNanoseconds(report.round_trip_s));
  for (const LinkPeriod& period : report.down) {
    message->add_down_bytes(period.bytes);
    message->add_down_ns(ToNanoseconds(period.seconds));
  }
  message->set_compute_ns(ToNanoseconds(report.compute_s));
  message->set_encode_ns(ToNanoseconds(report.encode_s));
  message->set_apply_ns(ToNanoseconds(report.apply_s));
  message->set_exposed_ns(ToNanoseconds(report.exposed_s));
  if (report.tested.has_value()) message->set_tested(*report.tested);
}

LinkReport LinkReportFromProto(const v1::LinkReport& message) {
  LinkReport report{.step = message.step(),
                    .round_trip_s = FromNanoseconds(message.round_trip_ns()),
                    .down = {},
                    .compute_s = FromNanoseconds(message.compute_ns()),
                    .encode_s = FromNanoseconds(message.encode_ns()),
                    .apply_s = FromNanoseconds(message.apply_ns()),
                    .exposed_s = FromNanoseconds(message.exposed_ns())};
  if (message.has_tested() && message.tested() >= 0 && message.tested() <= 1) {
    report.tested = message.tested();
  }
  const auto periods =
      static_cast<size_t>(std::min(message.down_bytes_size(), message.down_ns_size()));
  for (size_t i = 0; i < std::min(periods, LinkReport::kPeriodsMax); ++i) {
    const LinkPeriod period{.bytes = message.down_bytes(static_cast<int>(i)),
                            .seconds = FromNanoseconds(message.down_ns(static_cast<int>(i)))};
    if (period.bytes > 0 && period.seconds > 0) report.down.push_back(period);
  }
  return report;
}

}  // namespace sluice::protocol
