// `sluice bench exchange`: how long workers take to exchange a step's gradients, against the same
// without compression.
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
  std::string spec;  // Empty, and the next: ChooseCodecs.
  std::string down_spec;
  uint32_t workers = 2;
  uint32_t shards = 2;
  std::vector<std::string> sets;
  uint32_t warmup = 20;  // Until feedback sends as much as it will go on sending.
  uint32_t repeats = 20;
  double compute_ms = 0;   // Gradients become ready over so long; 0: all at once.
  bool baselines = true;   // The same again with `none` and with `fp16`.
  std::string connect;     // HOST:PORT of a coordinator that runs the job; empty: start servers.
  bool print_job = false;  // Only print the job file that is to run there.
  std::vector<std::string> server_hosts;  // Empty: loopback, at free ports.
  std::string wrap_worker;                // As in ExchangePlanOptions.
  std::string wrap_server;
  std::string link_rate;  // That the links have, for floors; empty: unknown.
  double timeout_seconds = 120;
  std::string json_path;   // Empty: no file.
  std::string log_folder;  // Empty: logs are not kept.

  std::string program;  // Path of this one.
  std::string program_folder;
  std::string temporary_folder;
  std::vector<std::string> environment;
  cli::ConsoleOptions console;
};

// Call it on the main thread, before others are started. The program's exit code: 0; 1: the
// measurement failed; 2: a flag is wrong; 128 + a signal: stopped by it. Whatever comes back, no
// process and no file of the measurement is left but the report, and logs where asked for.
int RunExchangeBench(const ExchangeBenchOptions& options);

}  // namespace sluice::bench
