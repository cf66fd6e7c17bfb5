// What programs with a Server in them have in common: sluice-server and sluice-relay.
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
  std::string http_listen;  // "off": none.
  bool http_tls = false;
  std::string http_client_ca;
  std::vector<std::string> http_host;
  std::string health_listen;
  net::TransportOptions transport;
  bool allow_anonymous = false;
  app::LogFlags log;
};

// --advertise, --http-tls, --http-client-ca, --http-host, --health-listen, --allow-anonymous, and
// those of transport and log. `flags` must outlive the parsing.
void AddServingFlags(CLI::App* app, ServingFlags* flags);

// Connections that the ports of --http-listen and --health-listen take at a time.
uint64_t HttpConnectionsMax(const ServingFlags& flags);

// SIGINT and SIGTERM. Before any thread, so that all of them leave the signals to RunUntilEnd.
sigset_t BlockStopSignals();

// For ServerOptions::job_uid.
uint64_t RandomBits();

// What pages show of a server; `job_name`, `shard` and `shards` as its job has them.
HttpView ViewOf(const Server& server, const job::JobSpec& job, uint32_t shard);

// The gRPC port of the process, for /livez.
struct GrpcPort {
  std::string listen;  // HOST:PORT, as it was asked for.
  int port = 0;        // Taken.
};

// The ports of --http-listen and --health-listen. INVALID_ARGUMENT: --http-tls without a
// certificate, --http-client-ca without --http-tls. `view` is called as long as they are there, and
// as long the gRPC port is asked whether it answers.
absl::StatusOr<std::vector<std::unique_ptr<net::HttpServer>>> ServeHttp(
    const ServingFlags& flags, const GrpcPort& grpc, const std::function<HttpView()>& view,
    const Logger& logger);

// What RunUntilEnd looks after.
struct Serving {
  std::function<std::optional<absl::Status>()> outcome;  // Empty as long as it runs.
  std::function<void(absl::string_view reason)> stop;
};

// Until the job has ended or a signal came and was dealt with: the exit code. The first signal
// stops what is served and waits for its outcome, unless `ends_at_once`; a second does not wait.
int RunUntilEnd(const Serving& serving, bool ends_at_once, const sigset_t& signals,
                const Logger& logger);

// Until a signal comes: others may still ask how the job ended. The exit code.
int StayFinished(const sigset_t& signals, const Logger& logger);

// Logs why something did not start: the exit code.
int FailedToStart(const absl::Status& status, const Logger& logger);

}  // namespace sluice::server
