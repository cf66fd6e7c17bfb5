// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/findings.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"

namespace sluice::cli {
namespace {

// The usual limit. It suffices for small jobs alone (docs/operations.md).
constexpr uint64_t kDescriptorsWanted = 1024;
constexpr double kRoundTripWanted = 1.0;  // In seconds.
// Slower links need minutes for a step of most models, with any codec.
constexpr double kBytesPerSecondWanted = 125e3;

DoctorCheck Reach(const char* name, const absl::Status& status, const char* success,
                  absl::string_view advice) {
  if (status.ok()) return {DoctorMark::kOk, name, success};
  return {DoctorMark::kFailed, name, absl::StrCat(status.message(), "; ", advice)};
}

// Returns three significant digits, without an exponent.
std::string Digits(double value) {
  return value < 1000 ? absl::StrFormat("%.3g", value) : absl::StrFormat("%.0f", value);
}

DoctorCheck Versions(const DoctorFindings& findings) {
  const std::string& here = findings.here.version;
  const std::string& there = findings.there.version;
  if (here == there) return {DoctorMark::kOk, "version", absl::StrCat(here, " on both machines")};
  return {DoctorMark::kFailed, "version",
          absl::StrCat(here, " here and ", there, " there; use one build everywhere")};
}

DoctorCheck RoundTrip(double seconds) {
  if (!(seconds > 0)) return {DoctorMark::kFailed, "round trip", "no answer was timed; try again"};
  const std::string text = absl::StrFormat("%.3g ms", 1000 * seconds);
  if (seconds <= kRoundTripWanted) return {DoctorMark::kOk, "round trip", text};
  return {DoctorMark::kWarning, "round trip",
          text + "; a step waits at least this long, so exchange less often (local_steps)"};
}

DoctorCheck Rate(const char* name, double bytes_per_second) {
  if (!(bytes_per_second > 0)) {
    return {DoctorMark::kFailed, name,
            "too few bytes arrived to measure it; check the link, and try again"};
  }
  const std::string text = absl::StrCat(Digits(bytes_per_second / 1e6), " MB/s (",
                                        Digits(8 * bytes_per_second / 1e6), " Mbit/s)");
  if (bytes_per_second >= kBytesPerSecondWanted) return {DoctorMark::kOk, name, text};
  return {DoctorMark::kWarning, name,
          text + "; use a sparse codec, and exchange less often (local_steps)"};
}

DoctorCheck Descriptors(uint64_t here, uint64_t there) {
  const std::string text = absl::StrCat(here, " here, ", there, " there");
  if (here >= kDescriptorsWanted && there >= kDescriptorsWanted) {
    return {DoctorMark::kOk, "descriptors", text};
  }
  return {DoctorMark::kWarning, "descriptors",
          absl::StrCat(text, "; raise the hard limit (`ulimit -Hn`) to ", kDescriptorsWanted,
                       " or more")};
}

DoctorCheck Clocks(double peer_ahead) {
  return {DoctorMark::kOk, "clocks",
          absl::StrFormat("the other clock is %.3f s %s; only log lines and certificates use it",
                          std::abs(peer_ahead), peer_ahead < 0 ? "behind" : "ahead")};
}

}  // namespace

std::vector<DoctorCheck> ChecksOf(const DoctorFindings& findings) {
  return {Reach("reach there", findings.reaches_peer, "a connection from here answers",
                "open the port there (a machine with workers alone needs none)"),
          Reach("reach here", findings.reached_by_peer, "a connection from there answers",
                "open the port here (a machine with workers alone needs none)"),
          Versions(findings),
          RoundTrip(findings.round_trip_seconds),
          Rate("rate there", findings.sent_bytes_per_second),
          Rate("rate here", findings.received_bytes_per_second),
          Descriptors(findings.here.descriptors, findings.there.descriptors),
          Clocks(findings.peer_ahead_seconds)};
}

std::string FormatCheck(const DoctorCheck& check) {
  const char* const mark = check.mark == DoctorMark::kOk        ? "ok"
                           : check.mark == DoctorMark::kWarning ? "warning"
                                                                : "failed";
  return absl::StrFormat("%-8s %-12s %s", mark, check.name, EscapeControls(check.text));
}

}  // namespace sluice::cli
