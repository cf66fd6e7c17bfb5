// ExchangeWorker: a worker of a real job that computes nothing: `sluice bench exchange` starts one
// for each rank and tells it when to take its turns (bench/measure/exchange_protocol.h).
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

// Until it is told to leave or standard input ends. Returns the exit code: 0; 1: the session
// failed; 2: a flag or the job file is wrong. Why is the last line on standard error.
int RunExchangeWorker(const ExchangeWorkerOptions& options);

}  // namespace sluice::bench
