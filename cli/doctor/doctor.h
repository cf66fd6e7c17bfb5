// SPDX-License-Identifier: Apache-2.0
// `sluice doctor`: checks the network between two machines before a first run.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "cli/doctor/rate_meter.h"
#include "cli/launch/console.h"
#include "net/grpc/transport_options.h"

namespace sluice::cli {

struct DoctorOptions {
  std::string connect{};  // HOST:PORT of the other machine. Empty on the machine that only listens.
  std::string listen{};   // HOST:PORT
  absl::Duration wait = absl::Minutes(10);  // For the other machine to connect.
  uint64_t parameters = 25'000'000;         // The forecast is for a model of this size.
  std::string version{};                    // This program's version.
  uint64_t descriptors = 0;                 // The limit of this process.
  net::TransportOptions security{};
  DoctorLimits limits{};
  ConsoleOptions console{};
};

// Prints a line for each check, and a table of times. Returns the exit code of the program: 0 if no
// check failed, 1 if one did, 2 if a file of `security` or an address is invalid.
int ExamineNetwork(const DoctorOptions& options);

}  // namespace sluice::cli
