// SPDX-License-Identifier: Apache-2.0
// Conversion of a job file's numbers to and from text: plain numbers, byte counts and durations.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::job {

// These functions fail with INVALID_ARGUMENT. The message states only the expected form ("a whole
// number"); the caller adds the place.
absl::StatusOr<uint64_t> ParseWhole(absl::string_view text);
// Accepts finite numbers only.
absl::StatusOr<double> ParseReal(absl::string_view text);
// Accepts, for example, "262144", "256KiB" or "1.5MB".
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);
// Returns seconds. Accepts, for example, "10", "10s", "500ms", "2m" or "1h".
absl::StatusOr<double> ParseSeconds(absl::string_view text);

// Return regular expressions for the texts that ParseBytes and ParseSeconds accept. The expressions
// do not check the number's value.
std::string BytesPattern();
std::string SecondsPattern();

// Returns the shortest text that reads back as the same number.
std::string FormatReal(double value);
// Returns the shortest exact text with the unit "s" and without an exponent.
std::string FormatSeconds(double seconds);
// Returns a text such as "256KiB" if it is exact, and otherwise the plain number.
std::string FormatWholeBytes(uint64_t bytes);

}  // namespace sluice::job
