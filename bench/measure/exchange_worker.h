// SPDX-License-Identifier: Apache-2.0
// ExchangeWorker: a worker of a real job without computation. `sluice bench exchange` starts one
// for each rank and orders its turns (bench/measure/exchange_protocol.h).
#pragma once

#include <cstdint>
#include <string>

#include "bench/measure/exchange_job.h"
#include "net/grpc/transport_options.h"

namespace sluice::bench {

struct ExchangeWorkerOptions {
  std::string job_path;
  std::string coordinator;  // HOST:PORT
  uint32_t rank = 0;
  ExchangeGradients gradients;
  net::TransportOptions security;
};

// Runs until the order to leave or the end of standard input. Returns the exit code: 0; 1 if the
// session failed; 2 if a flag or the job file is invalid. The last line on standard error gives the
// reason.
int RunExchangeWorker(const ExchangeWorkerOptions& options);

}  // namespace sluice::bench
