// SPDX-License-Identifier: Apache-2.0
// Common parts of sluice-server and sluice-relay, the programs that run a Server.
#pragma once

#include <signal.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "app/log_flags.h"
#include "base/log.h"
#include "net/grpc/transport_options.h"
#include "net/http/http_server.h"
#include "server/http/http_view.h"
#include "server/rpc/server.h"

namespace CLI {
class App;
}

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::server {

struct ServingFlags {
  std::string advertise;
  std::string http_listen;  // "off" disables the port.
  bool http_tls = false;
  std::string http_client_ca;
  std::vector<std::string> http_host;
  std::string health_listen;
  net::TransportOptions transport;
  bool allow_anonymous = false;
  app::LogFlags log;
};

// Adds --advertise, --http-tls, --http-client-ca, --http-host, --health-listen, --allow-anonymous,
// and the flags for transport and log. `flags` must exist until the command line is parsed.
void AddServingFlags(CLI::App* app, ServingFlags* flags);

// Returns the number of concurrent connections that the ports of --http-listen and --health-listen
// accept.
uint64_t HttpConnectionsMax(const ServingFlags& flags);

// Blocks SIGINT and SIGTERM. Call this before any thread starts, so that only RunUntilEnd receives
// these signals.
sigset_t BlockStopSignals();

// Returns a random number for ServerOptions::job_uid.
uint64_t RandomBits();

// Returns the state of a server for the pages. The job name, the shard and the number of shards
// come from the arguments.
HttpView ViewOf(const Server& server, const job::JobSpec& job, uint32_t shard);

// The gRPC port of the process, which /livez checks.
struct GrpcPort {
  std::string listen;  // HOST:PORT, as requested.
  int port = 0;        // The port in use.
};

// Opens the ports of --http-listen and --health-listen. Fails with INVALID_ARGUMENT for --http-tls
// without a certificate and for --http-client-ca without --http-tls. While the returned servers
// exist, they call `view` and probe the gRPC port.
absl::StatusOr<std::vector<std::unique_ptr<net::HttpServer>>> ServeHttp(
    const ServingFlags& flags, const GrpcPort& grpc, const std::function<HttpView()>& view,
    const Logger& logger);

// The callbacks of RunUntilEnd.
struct Serving {
  std::function<std::optional<absl::Status>()> outcome;  // Returns no value while the job runs.
  std::function<void(absl::string_view reason)> stop;
  // Returns true if the process that started this one has ended; this stops the job as a signal
  // would. If unset, nothing is checked.
  std::function<bool()> parent_has_ended{};
};

// Returns the exit code once the job has ended, or once a signal has arrived and was handled. The
// first signal calls `stop` and then waits for the outcome, unless `ends_at_once`. The second
// signal ends the wait.
int RunUntilEnd(const Serving& serving, bool ends_at_once, const sigset_t& signals,
                const Logger& logger);

// Waits for a signal. Until then, other processes can still ask how the job ended. Returns the exit
// code.
int StayFinished(const sigset_t& signals, const Logger& logger);

// Logs the reason for a failed start. Returns the exit code.
int FailedToStart(const absl::Status& status, const Logger& logger);

}  // namespace sluice::server
