// SPDX-License-Identifier: Apache-2.0
// `sluice bench exchange`: measures how long workers take to exchange a step's gradients, and
// compares it with an exchange without compression.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "bench/measure/exchange_job.h"
#include "cli/launch/console.h"
#include "net/grpc/transport_options.h"

namespace sluice::bench {

struct ExchangeBenchOptions {
  ExchangeGradients gradients;
  net::TransportOptions security;
  std::string spec;  // ChooseCodecs interprets this and down_spec; both may be empty.
  std::string down_spec;
  uint32_t workers = 2;
  uint32_t shards = 2;
  std::vector<std::string> sets;
  uint32_t warmup = 20;  // Exchanges before the measurement, until feedback's traffic is steady.
  uint32_t repeats = 20;
  // Duration over which gradients become ready. With 0, all gradients are ready at once.
  double compute_ms = 0;
  bool baselines = true;  // Repeats the measurement with `none` and with `fp16`.
  // HOST:PORT of a coordinator that runs the job. If empty, servers are started.
  std::string connect;
  bool print_job = false;                 // Only prints the job file for the coordinator.
  std::vector<std::string> server_hosts;  // If empty, free ports on loopback.
  std::string wrap_worker;                // As in ExchangePlanOptions.
  std::string wrap_server;
  std::string link_rate;  // Rate of the links, for floors. Empty if unknown.
  double timeout_seconds = 120;
  std::string report_path;  // Empty for no file.
  std::string log_folder;   // Empty if logs are not kept.

  std::string program;  // Path of this program.
  std::string program_folder;
  std::string temporary_folder;
  std::vector<std::string> environment;
  cli::ConsoleOptions console;
};

// Call this on the main thread, before other threads start. Returns the program's exit code: 0; 1
// if the measurement failed; 2 if a flag is invalid; 128 + the number of the signal that stopped
// it. In every case it leaves no process and no file behind, except the report, and the logs if
// requested.
int RunExchangeBench(const ExchangeBenchOptions& options);

}  // namespace sluice::bench
