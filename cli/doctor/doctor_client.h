// SPDX-License-Identifier: Apache-2.0
// DoctorClient: the connecting end of `sluice doctor`. It makes all checks, one after the other.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/doctor/findings.h"
#include "cli/doctor/rate_meter.h"
#include "net/grpc/transport.h"

namespace sluice::cli {

struct DoctorClientOptions {
  std::string connect{};  // HOST:PORT of the listening end.
  // Where the other machine may connect to: HOST:PORT. If empty, the port of `connect`, at the
  // address that the other machine sees.
  std::string listen{};
  DoctorMachine here{};
  DoctorLimits limits{};
};

// Fails if the other machine does not answer, or refuses. A check that fails is in the findings.
absl::StatusOr<DoctorFindings> ExamineLink(const DoctorClientOptions& options,
                                           const net::Transport& transport);

}  // namespace sluice::cli
