// Quantities as people write and read them: link rates in; byte counts, ratios and durations out.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice::cli {

// Bits per second: no link here is slower.
inline constexpr double kLowestBitRate = 1e4;

// "100mbit", "2.5gbit", "800kbit", "64000bit": bits per second, decimal units.
// INVALID_ARGUMENT for anything else and outside 10 kbit ... 100 gbit.
absl::StatusOr<double> ParseBitRate(absl::string_view text);

// "512 B", "1.23 KiB", "45.6 MiB".
std::string FormatBytes(double bytes);

// "0.97x", "12.3x", "203x"; "-" where there is no ratio (0 or not finite).
std::string FormatRatio(double ratio);

// "0:42", "12:03", "1:02:03"; "-" for an infinite or negative one.
std::string FormatElapsed(absl::Duration duration);

}  // namespace sluice::cli
