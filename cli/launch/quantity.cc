// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/quantity.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace sluice::cli {
namespace {

constexpr double kHighestRate = 1e11;

struct RateUnit {
  absl::string_view name;
  double bits;
};
// "bit" must come last, because the other suffixes end with it.
constexpr std::array<RateUnit, 4> kRateUnits = {
    {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}}};

// Formats a value with three significant digits and without an exponent.
std::string ThreeDigits(double value) {
  if (value >= 99.95) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.*f", value >= 9.995 ? 1 : 2, value);
}

}  // namespace

absl::StatusOr<double> ParseBitRate(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const RateUnit& unit : kRateUnits) {
    absl::string_view number = lower;
    if (!absl::ConsumeSuffix(&number, unit.name)) continue;
    double value = 0;
    if (!absl::SimpleAtod(number, &value) || !std::isfinite(value)) break;
    const double rate = value * unit.bits;
    if (rate < kLowestBitRate || rate > kHighestRate) {
      return absl::InvalidArgumentError(
          absl::StrCat("the rate '", text, "' is outside 10kbit ... 100gbit"));
    }
    return rate;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a link rate: write a number and kbit, mbit or gbit, ",
                   "for example 100mbit or 2.5gbit"));
}

std::string FormatBytes(double bytes) {
  if (!std::isfinite(bytes) || bytes < 0) return "-";
  if (bytes < 1024) return absl::StrFormat("%.0f B", bytes);
  constexpr std::array<absl::string_view, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  bytes /= 1024;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrCat(ThreeDigits(bytes), " ", kUnits[unit]);
}

std::string FormatRatio(double ratio) {
  if (!std::isfinite(ratio) || ratio <= 0) return "-";
  return absl::StrCat(ThreeDigits(ratio), "x");
}

std::string FormatElapsed(absl::Duration duration) {
  if (duration < absl::ZeroDuration() || duration == absl::InfiniteDuration()) return "-";
  const int64_t seconds = absl::ToInt64Seconds(duration);
  if (seconds < 3600) return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
  return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

}  // namespace sluice::cli
