// SPDX-License-Identifier: Apache-2.0
// DoctorFindings: the results of `sluice doctor`, seen from one of the two machines, and the checks
// that follow from them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sluice::cli {

struct DoctorMachine {
  std::string version{};
  uint64_t descriptors = 0;  // The limit of the process.
};

// A rate or a time of 0 was not measured.
struct DoctorFindings {
  std::string peer{};  // The peer's address.
  DoctorMachine here{};
  DoctorMachine there{};
  // Whether a connection that one machine opens reaches the other.
  absl::Status reaches_peer = absl::OkStatus();
  absl::Status reached_by_peer = absl::OkStatus();
  double round_trip_seconds = 0;
  double peer_ahead_seconds = 0;  // By how much the peer's clock is ahead.
  double sent_bytes_per_second = 0;
  double received_bytes_per_second = 0;
};

enum class DoctorMark { kOk, kWarning, kFailed };

struct DoctorCheck {
  DoctorMark mark = DoctorMark::kOk;
  std::string name{};
  std::string text{};  // The result and, unless the mark is kOk, what to do.
};

std::vector<DoctorCheck> ChecksOf(const DoctorFindings& findings);

// Returns a line without a newline. Control characters are escaped.
std::string FormatCheck(const DoctorCheck& check);

}  // namespace sluice::cli
