// Numbers of a job file as text: plain ones, byte counts and durations.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::job {

// Errors are INVALID_ARGUMENT and say only what was expected ("a whole number"); the caller says
// where.
absl::StatusOr<uint64_t> ParseWhole(absl::string_view text);
// Finite.
absl::StatusOr<double> ParseReal(absl::string_view text);
// "262144", "256KiB", "1.5MB".
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);
// "10", "10s", "500ms", "2m", "1h", in seconds.
absl::StatusOr<double> ParseSeconds(absl::string_view text);

// The shortest text that reads back as the same number.
std::string FormatReal(double value);
// The same with "s" behind it and without an exponent.
std::string FormatSeconds(double seconds);
// "256KiB" where that is exact, else the number.
std::string FormatWholeBytes(uint64_t bytes);

}  // namespace sluice::job
