// SPDX-License-Identifier: Apache-2.0
#include "job/file/quantity_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace sluice::job {
namespace {

struct Suffix {
  absl::string_view text;
  double factor;
};

constexpr Suffix kByteSuffixes[] = {
    {"", 1},     {"B", 1},         {"kB", 1e3},      {"KB", 1e3},      {"MB", 1e6},
    {"GB", 1e9}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1024.0 * (1 << 30)}};
constexpr Suffix kSecondSuffixes[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};

constexpr double kLargestExact = 0x1.0p53;  // Whole numbers below this limit are exact in a double.

// Parses a number with one of the suffixes. Returns -1 if the text is not such a number.
double ParseSuffixed(absl::string_view text, absl::Span<const Suffix> suffixes) {
  const auto* const end = std::find_if(text.begin(), text.end(), [](char c) {
    return c != '.' && !absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  const auto digits = static_cast<size_t>(end - text.begin());
  double number = 0;
  if (digits == 0 || !absl::SimpleAtod(text.substr(0, digits), &number)) return -1;
  const absl::string_view unit = absl::StripLeadingAsciiWhitespace(text.substr(digits));
  for (const Suffix& suffix : suffixes) {
    if (suffix.text == unit) return number * suffix.factor;
  }
  return -1;
}

// Returns a pattern for a number with one of the suffixes.
std::string PatternOf(absl::Span<const Suffix> suffixes) {
  const auto append = [](std::string* out, const Suffix& suffix) {
    absl::StrAppend(out, suffix.text);
  };
  return absl::StrCat("^[0-9.]+\\s*(", absl::StrJoin(suffixes, "|", append), ")$");
}

}  // namespace

std::string BytesPattern() { return PatternOf(kByteSuffixes); }

std::string SecondsPattern() { return PatternOf(kSecondSuffixes); }

absl::StatusOr<uint64_t> ParseWhole(absl::string_view text) {
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  uint64_t value = 0;
  if (!digits || !absl::SimpleAtoi(text, &value)) {
    return absl::InvalidArgumentError("a whole number, 0 or more");
  }
  return value;
}

absl::StatusOr<double> ParseReal(absl::string_view text) {
  double value = 0;
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.eE+-") == text.npos;
  if (!plain || !absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
    return absl::InvalidArgumentError("a number");
  }
  return value;
}

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  const double bytes = ParseSuffixed(text, kByteSuffixes);
  if (!(bytes >= 0 && bytes < kLargestExact) || bytes != std::floor(bytes)) {
    return absl::InvalidArgumentError(
        "a whole number of bytes like 262144, 256KiB or 1MB (B, KB, MB, GB, KiB, MiB, GiB, TiB)");
  }
  return static_cast<uint64_t>(bytes);
}

absl::StatusOr<double> ParseSeconds(absl::string_view text) {
  const double seconds = ParseSuffixed(text, kSecondSuffixes);
  if (!(seconds >= 0) || !std::isfinite(seconds)) {
    return absl::InvalidArgumentError("a duration like 10s, 500ms, 2m or 1h");
  }
  return seconds;
}

std::string FormatReal(double value) {
  std::array<char, 32> text;
  const std::to_chars_result end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), end.ptr);
}

std::string FormatSeconds(double seconds) {
  std::array<char, 400> text;  // The largest double has 309 digits before the point.
  const std::to_chars_result end =
      std::to_chars(text.data(), text.data() + text.size(), seconds, std::chars_format::fixed);
  return absl::StrCat(absl::string_view(text.data(), static_cast<size_t>(end.ptr - text.data())),
                      "s");
}

std::string FormatWholeBytes(uint64_t bytes) {
  for (const Suffix& suffix : {Suffix{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}) {
    const auto factor = static_cast<uint64_t>(suffix.factor);
    if (bytes >= factor && bytes % factor == 0) return absl::StrCat(bytes / factor, suffix.text);
  }
  return absl::StrCat(bytes);
}

}  // namespace sluice::job
