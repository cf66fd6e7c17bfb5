// SPDX-License-Identifier: Apache-2.0
// sluice-relay: acts for the workers of one rack (docs/relay.md), or serves followers of a job
// (docs/followers.md).
#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "app/exit_codes.h"
#include "app/flags.h"
#include "app/old_flags.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/heap.h"
#include "base/log.h"
#include "job/relays.h"
#include "net/grpc/grpc_weakness.h"
#include "net/grpc/transport.h"
#include "relay/relay.h"
#include "relay/weights_server.h"
#include "server/serving.h"

namespace sluice::relay {
namespace {

constexpr int kPortsAboveServers = 100;
constexpr char kListenForFollowers[] = "127.0.0.1:7170";

constexpr char kFooter[] = R"(
Exit codes: 0 the job finished; 1 it failed, the reason is the last line; 2 wrong usage or job file;
128 + N stopped by signal N: the whole job is told and ends. With --supervised, in a job with
checkpoints, a signal ends this process alone, and the job waits for its next; 0 if it had finished.

The first of two racks of two workers, with the job's server elsewhere:
  sluice-relay --job job.yaml --relay 0 --coordinator server:7070 --listen 10.0.0.1:7170
  sluice-worker --job job.yaml --rank 0 --coordinator 10.0.0.1:7170
  sluice-worker --job job.yaml --rank 1 --coordinator 10.0.0.1:7170

A relay for followers, which needs no job file:
  sluice-relay --followers-of server:7070 --listen 10.0.0.1:7170
  sluice follow 10.0.0.1:7170 --output weights)";

struct Flags : server::ServingFlags {
  job::LoadJobOptions job;
  uint32_t relay = 0;
  std::string coordinator = "127.0.0.1:7070";
  std::string listen;
  bool supervised = false;
  std::string followers_of;
  uint32_t max_followers = 64;
};

void AddFlags(CLI::App* app, Flags* flags) {
  app::AddJobFlags(app, &flags->job);
  CLI::Option* const job = app->get_option("--job")->required(false);
  app->add_option("--followers-of", flags->followers_of,
                  "Serve only followers of the job with this shard 0, or of another such relay")
      ->type_name("HOST:PORT")
      ->excludes(job);
  app->add_option("--max-followers", flags->max_followers,
                  "With --followers-of: followers that may be connected at a time")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--relay", flags->relay, "Index of this relay in the job, from 0")
      ->type_name("K")
      ->capture_default_str();
  app->add_option("--coordinator", flags->coordinator, "Address of the job's shard 0")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app->add_option(
         "--listen", flags->listen,
         "Address for this rack's workers; port 0 selects any free port. A job with several shards "
         "also uses other free ports on the same host [127.0.0.1, port 7170 + relay]")
      ->type_name("HOST:PORT");
  app->add_option("--http-listen", flags->http_listen,
                  "Status page, /metrics, /livez, /readyz and /startupz of this rack; port 0 "
                  "selects any free port, `off` disables it [off]")
      ->type_name("HOST:PORT");
  app->add_flag("--supervised", flags->supervised,
                "For a process that a supervisor such as Kubernetes restarts whenever it ends: in "
                "a job with checkpoints, a signal ends the process and not the job. After the job "
                "has finished, the process answers requests until it is stopped");
  server::AddServingFlags(app, flags);
  app::AddOldOption(app, "--upstream", "--coordinator", &flags->coordinator);
}

// Gives the rack a separate name, so that its metrics are not mixed with the servers' metrics.
job::JobSpec RackAsShown(const job::JobSpec& job, uint32_t relay) {
  job::JobSpec rack = job::JobOfRack(job, relay);
  rack.name = absl::StrCat(job.name, "/rack-", relay);
  return rack;
}

// The two transports of a relay: to the job, and for the processes behind the relay.
struct Transports {
  std::shared_ptr<const net::Transport> job;
  std::shared_ptr<const net::Transport> own;
};

absl::StatusOr<Transports> OpenTransports(const net::TransportOptions& options,
                                          const Logger& logger) {
  absl::StatusOr<std::shared_ptr<const net::Transport>> job = net::Transport::Open(options, logger);
  if (!job.ok()) return job.status();
  // Only connections to the job go through a proxy.
  net::TransportOptions own_options = options;
  own_options.grpc_proxy.clear();
  absl::StatusOr<std::shared_ptr<const net::Transport>> own =
      net::Transport::Open(own_options, logger);
  if (!own.ok()) return own.status();
  return Transports{.job = *std::move(job), .own = *std::move(own)};
}

// Serves followers until the job ends.
int RunForFollowers(const Flags& flags) {
  const sigset_t signals = server::BlockStopSignals();
  const Logger logger("relay", flags.log.OptionsFor(""));
  const SteadyClock clock;
  const absl::StatusOr<Transports> transports = OpenTransports(flags.transport, logger);
  if (!transports.ok()) return server::FailedToStart(transports.status(), logger);
  const absl::StatusOr<std::unique_ptr<WeightsServer>> relay =
      WeightsServer::Start({.upstream = flags.followers_of,
                            .listen = flags.listen,
                            .transport = transports->job,
                            .own_transport = transports->own,
                            .allow_anonymous = flags.allow_anonymous,
                            .followers_max = flags.max_followers,
                            .http_connections = server::HttpConnectionsMax(flags)},
                           &clock, logger);
  if (!relay.ok()) return server::FailedToStart(relay.status(), logger);
  const std::function<server::HttpView()> view = [&] {
    const follow::FollowerFigures figures = (*relay)->figures();
    server::HttpView shown{.job_name = absl::StrCat((*relay)->job_name(), "/followers"),
                           .software_version = SLUICE_VERSION,
                           .ready = true,
                           .followers = figures};
    shown.stats.highest_closed_step = figures.newest_step;
    return shown;
  };
  const auto http =
      server::ServeHttp(flags, {.listen = flags.listen, .port = (*relay)->port()}, view, logger);
  if (!http.ok()) return server::FailedToStart(http.status(), logger);
  return server::RunUntilEnd(
      {.outcome = [&] { return (*relay)->Outcome(); }, .stop = [](absl::string_view) {}},
      /*ends_at_once=*/true, signals, logger);
}

int Run(Flags flags) {
  if (flags.job.path.empty() && flags.followers_of.empty()) {
    std::cerr << "sluice-relay: --job is required, or --followers-of\n";
    return app::kExitUsage;
  }
  if (flags.http_listen.empty()) flags.http_listen = "off";
  if (!flags.followers_of.empty()) {
    if (flags.listen.empty()) flags.listen = kListenForFollowers;
    return RunForFollowers(flags);
  }
  const absl::StatusOr<job::JobSpec> job = job::LoadJob(flags.job);
  if (!job.ok()) {
    std::cerr << "sluice-relay: " << job.status().message() << "\n";
    return app::kExitUsage;
  }
  if (flags.listen.empty()) {
    flags.listen = absl::StrCat("127.0.0.1:", job->server.port + kPortsAboveServers + flags.relay);
  }
  const sigset_t signals = server::BlockStopSignals();
  const LogOptions log = flags.log.OptionsFor(job->name);
  const Logger logger(absl::StrCat("relay-", flags.relay), log);
  if (flags.relay == 0) {
    for (const std::string& warning : job->file_warnings) logger.Warning(warning);
  }
  const SteadyClock clock;
  const absl::StatusOr<Transports> transports = OpenTransports(flags.transport, logger);
  if (!transports.ok()) {
    logger.Error(transports.status().message());
    return app::kExitUsage;
  }
  const RelayOptions options{.job = *job,
                             .relay = flags.relay,
                             .listen = flags.listen,
                             .advertise = flags.advertise,
                             .upstream = flags.coordinator,
                             .transport = transports->job,
                             .rack_transport = transports->own,
                             .allow_anonymous = flags.allow_anonymous,
                             .supervised = flags.supervised,
                             .log = log,
                             .http_connections = server::HttpConnectionsMax(flags),
                             .software_version = SLUICE_VERSION,
                             .job_uid = server::RandomBits()};
  absl::StatusOr<std::unique_ptr<Relay>> relay = Relay::Start(options, &clock);
  if (!relay.ok()) return server::FailedToStart(relay.status(), logger);
  const job::JobSpec rack = RackAsShown(*job, flags.relay);
  // A relay that is restarted after the end of the job never joins it, but still counts as ready.
  std::atomic<bool> finished = false;
  const std::function<server::HttpView()> view = [&] {
    server::HttpView shown = server::ViewOf((*relay)->rack(), rack, /*shard=*/0);
    shown.ready = shown.ready || finished;
    return shown;
  };
  const auto http = server::ServeHttp(
      flags, {.listen = flags.listen, .port = (*relay)->rack().port()}, view, logger);
  if (!http.ok()) return server::FailedToStart(http.status(), logger);
  const int code = server::RunUntilEnd(
      {.outcome = [&] { return (*relay)->Outcome(); },
       .stop = [&](absl::string_view reason) { (*relay)->Stop(reason); }},
      /*ends_at_once=*/flags.supervised && job->checkpoint.enabled(), signals, logger);
  finished = code == app::kExitFinished;
  return finished && flags.supervised ? server::StayFinished(signals, logger) : code;
}

}  // namespace
}  // namespace sluice::relay

int main(int argc, char** argv) {
  sluice::KeepFreedMemory();
  sluice::RaiseDescriptorLimit();
  sluice::relay::Flags flags;
  if (const char* const proxy = std::getenv("grpc_proxy")) flags.transport.grpc_proxy = proxy;
  CLI::App app("Acts for the workers of one rack of a Sluice job, or serves followers of a job.",
               "sluice-relay");
  app.set_version_flag("--version",
                       "sluice " SLUICE_VERSION " (gRPC " + sluice::net::LinkedGrpcVersion() + ")");
  app.footer(sluice::relay::kFooter);
  sluice::relay::AddFlags(&app, &flags);
  const std::optional<int> done = sluice::app::ParseFlags(&app, argc, argv);
  return done.has_value() ? *done : sluice::relay::Run(std::move(flags));
}
