// SPDX-License-Identifier: Apache-2.0
// Quantity: parses link rates as people write them, and formats byte counts, ratios and durations
// for people.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice::cli {

// Lower limit of link rates, in bits per second.
inline constexpr double kLowestBitRate = 1e4;

// Converts "100mbit", "2.5gbit", "800kbit" or "64000bit" to bits per second; the units are decimal.
// Fails with INVALID_ARGUMENT for other formats and for rates outside 10 kbit ... 100 gbit.
absl::StatusOr<double> ParseBitRate(absl::string_view text);

// Returns, for example, "512 B", "1.23 KiB" or "45.6 MiB".
std::string FormatBytes(double bytes);

// Returns, for example, "0.97x", "12.3x" or "203x", and "-" if there is no ratio (0 or not finite).
std::string FormatRatio(double ratio);

// Returns, for example, "0:42", "12:03" or "1:02:03", and "-" for an infinite or negative duration.
std::string FormatElapsed(absl::Duration duration);

}  // namespace sluice::cli
