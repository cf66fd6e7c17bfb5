// SPDX-License-Identifier: Apache-2.0
#include "server/serving.h"

#include <CLI/CLI.hpp>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "app/exit_codes.h"
#include "app/transport_flags.h"
#include "base/process_usage.h"
#include "server/http/server_pages.h"
#include "server/own_port.h"

namespace sluice::server {
namespace {

struct HttpPort {
  net::HttpOptions options;
  bool health_only = false;
};

std::vector<HttpPort> HttpPorts(const ServingFlags& flags) {
  std::vector<HttpPort> ports;
  if (flags.http_listen != "off") {
    HttpPort& port = ports.emplace_back();
    port.options.listen = flags.http_listen;
    port.options.names = flags.http_host;
    port.options.names.push_back(flags.advertise.substr(0, flags.advertise.rfind(':')));
    if (flags.http_tls) {
      port.options.tls_cert = flags.transport.tls_cert;
      port.options.tls_key = flags.transport.tls_key;
      port.options.tls_client_ca = flags.http_client_ca;
    }
  }
  if (!flags.health_listen.empty()) {
    ports.push_back({.options = {.listen = flags.health_listen}, .health_only = true});
  }
  return ports;
}

}  // namespace

void AddServingFlags(CLI::App* app, ServingFlags* flags) {
  app->add_option("--advertise", flags->advertise,
                  "Address that workers connect to [as --listen]; needed with --listen 0.0.0.0")
      ->type_name("HOST:PORT");
  app->add_flag("--http-tls", flags->http_tls,
                "Serve --http-listen as HTTPS, with --tls-cert and --tls-key");
  app->add_option("--http-client-ca", flags->http_client_ca,
                  "With --http-tls: --http-listen answers only clients with a certificate of a CA "
                  "in this file; may be the file of --tls-ca")
      ->type_name("FILE");
  app->add_option("--http-host", flags->http_host,
                  "Host names that --http-listen accepts, besides IP addresses, localhost, this "
                  "host's name, and the names of --advertise, --http-listen and the certificate; "
                  "'.example.org' accepts all names that end with it")
      ->type_name("NAME,...")
      ->delimiter(',');
  app->add_option("--health-listen", flags->health_listen,
                  "A second port with /livez, /readyz and /startupz only, always plaintext: for "
                  "probes that cannot do TLS")
      ->type_name("HOST:PORT");
  app::AddTransportFlags(app, &flags->transport);
  app->add_option("--role-file", flags->transport.role_file,
                  "File with the roles of clients, by token or by name in a certificate: lines of "
                  "ROLE token TOKEN, ROLE name NAME or ROLE anyone [every client has all roles]")
      ->type_name("FILE");
  app->add_flag("--allow-anonymous", flags->allow_anonymous,
                "Let any client that reaches --listen join, although it is not loopback and there "
                "is neither --token-file nor --tls-ca");
  app::AddLogFlags(app, &flags->log);
}

uint64_t HttpConnectionsMax(const ServingFlags& flags) {
  uint64_t connections = 0;
  for (const HttpPort& port : HttpPorts(flags)) connections += port.options.connections_max;
  return connections;
}

sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // Without this, the process would end when the reader of its log ends.
  (void)::signal(SIGPIPE, SIG_IGN);
  return signals;
}

uint64_t RandomBits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

HttpView ViewOf(const Server& server, const job::JobSpec& job, uint32_t shard) {
  return {.job_name = job.name,
          .software_version = SLUICE_VERSION,
          .shard = shard,
          .shards = job.shards,
          .ready = server.ready(),
          .metrics_enabled = job.metrics_enabled,
          .stats = server.Stats(),
          .residual_energy = server.ResidualEnergy(),
          .stages = server.Stages(),
          .cpu_seconds = CpuSecondsOfThisProcess(),
          .links = server.Links(),
          .followers = server.Followers(),
          .snapshots = server.Snapshots(),
          .job = server.Status(),
          .report = server.Report()};
}

absl::StatusOr<std::vector<std::unique_ptr<net::HttpServer>>> ServeHttp(
    const ServingFlags& flags, const GrpcPort& grpc, const std::function<HttpView()>& view,
    const Logger& logger) {
  if (flags.http_tls && flags.transport.tls_cert.empty()) {
    return absl::InvalidArgumentError(
        "--http-tls serves the certificate of --tls-cert and --tls-key: give them");
  }
  if (!flags.http_client_ca.empty() && !flags.http_tls) {
    return absl::InvalidArgumentError("--http-client-ca needs --http-tls");
  }
  std::vector<std::unique_ptr<net::HttpServer>> servers;
  const std::vector<HttpPort> ports = HttpPorts(flags);
  if (ports.empty()) return servers;
  const auto own_port =
      std::make_shared<OwnPort>(net::PortProbe(grpc.listen, grpc.port, flags.transport.tls()));
  const Trouble trouble = [own_port] { return own_port->trouble(); };
  for (const HttpPort& port : ports) {
    const auto pages = port.health_only ? &HealthPage : &ServerPage;
    absl::StatusOr<std::unique_ptr<net::HttpServer>> server = net::HttpServer::Start(
        port.options,
        [pages, view, trouble](const std::string& path) { return pages(path, view, trouble); });
    if (!server.ok()) return server.status();
    servers.push_back(*std::move(server));
    logger.Info(port.health_only ? "health: " : "status page: ", servers.back()->url());
  }
  return servers;
}

int RunUntilEnd(const Serving& serving, bool ends_at_once, const sigset_t& signals,
                const Logger& logger) {
  int signal_number = 0;
  bool orphan = false;
  for (;;) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};
    const int got = sigtimedwait(&signals, nullptr, &pause);
    if (got > 0 && (signal_number != 0 || ends_at_once)) return app::kExitSignal + got;
    if (got > 0) {
      signal_number = got;
      const std::string name = got == SIGINT ? "SIGINT" : "SIGTERM";
      logger.Info("stopping: ", name);
      serving.stop(absl::StrCat("was stopped by ", name));
    }
    if (!orphan && serving.parent_has_ended && serving.parent_has_ended()) {
      orphan = true;
      logger.Info("stopping: the process that started this one has ended");
      serving.stop("was stopped, because the process that started it has ended");
    }
    const std::optional<absl::Status> outcome = serving.outcome();
    if (!outcome.has_value()) continue;
    if (signal_number != 0) return app::kExitSignal + signal_number;
    if (outcome->ok()) return app::kExitFinished;
    logger.Error(outcome->message());
    return app::kExitFailed;
  }
}

int StayFinished(const sigset_t& signals, const Logger& logger) {
  logger.Info("the job has finished; this process stays until it is stopped");
  int signal_number = 0;
  (void)sigwait(&signals, &signal_number);
  return app::kExitFinished;
}

int FailedToStart(const absl::Status& status, const Logger& logger) {
  logger.Error(status.message());
  return absl::IsInvalidArgument(status) ? app::kExitUsage : app::kExitFailed;
}

}  // namespace sluice::server
