// SPDX-License-Identifier: Apache-2.0
// ExchangeForecast: how long the exchange of a step takes on a measured link, for some codecs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/doctor/findings.h"

namespace sluice::cli {

struct ForecastRow {
  std::string uplink{};
  std::string downlink{};
  double uplink_bits = 0;  // Per parameter, measured on synthetic gradients.
  double downlink_bits = 0;
  double seconds = 0;
};

// A worker is here and all shards are there, and nothing else uses the link. Times of encoding and
// decoding are not included. The result is empty unless both rates were measured.
std::vector<ForecastRow> ForecastExchange(const DoctorFindings& findings, uint64_t parameters);

// Returns a table of several lines, without a newline at its end.
std::string FormatForecast(const std::vector<ForecastRow>& rows, uint64_t parameters);

}  // namespace sluice::cli
