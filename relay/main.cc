// sluice-relay: speaks for the workers of one rack. docs/relay.md.
#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "app/exit_codes.h"
#include "app/flags.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/heap.h"
#include "base/log.h"
#include "job/relays.h"
#include "net/grpc/transport.h"
#include "relay/relay.h"
#include "server/serving.h"

namespace sluice::relay {
namespace {

constexpr int kPortsAboveServers = 100;

constexpr char kFooter[] = R"(
Exit codes: 0 the job finished; 1 it failed, the reason is the last line; 2 wrong usage or job file;
128 + N stopped by signal N: the whole job is told and ends. With --supervised, in a job with
checkpoints, a signal ends this process alone, and the job waits for its next; 0 if it had finished.

The first of two racks of two workers, with the job's server elsewhere:
  sluice-relay --job job.yaml --relay 0 --upstream server:7070 --listen 10.0.0.1:7170
  sluice-worker --job job.yaml --rank 0 --coordinator 10.0.0.1:7170
  sluice-worker --job job.yaml --rank 1 --coordinator 10.0.0.1:7170)";

struct Flags : server::ServingFlags {
  job::LoadJobOptions job;
  uint32_t relay = 0;
  std::string upstream = "127.0.0.1:7070";
  std::string listen;
  bool supervised = false;
};

void AddFlags(CLI::App* app, Flags* flags) {
  app::AddJobFlags(app, &flags->job);
  app->add_option("--relay", flags->relay, "Which relay of the job this is, from 0")
      ->type_name("K")
      ->capture_default_str();
  app->add_option("--upstream", flags->upstream, "Address of the job's shard 0")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app->add_option("--listen", flags->listen,
                  "Where the workers of this rack connect; port 0: any free one. In a job of "
                  "several shards more ports, any free ones, are taken on the same host "
                  "[127.0.0.1, port 7170 + relay]")
      ->type_name("HOST:PORT");
  app->add_option("--http-listen", flags->http_listen,
                  "Status page, /metrics, /livez, /readyz and /startupz of this rack; port 0: any "
                  "free one; `off`: none [off]")
      ->type_name("HOST:PORT");
  app->add_flag("--supervised", flags->supervised,
                "Something such as Kubernetes starts this process again whenever it ends: in a job "
                "with checkpoints a signal ends the process, not the job, and when the job has "
                "finished the process stays, to be asked, until it is stopped");
  server::AddServingFlags(app, flags);
}

// Under a name of its own, so that nobody adds its metrics to those of the servers.
job::JobSpec RackAsShown(const job::JobSpec& job, uint32_t relay) {
  job::JobSpec rack = job::JobOfRack(job, relay);
  rack.name = absl::StrCat(job.name, "/rack-", relay);
  return rack;
}

int Run(Flags flags) {
  const absl::StatusOr<job::JobSpec> job = job::LoadJob(flags.job);
  if (!job.ok()) {
    std::cerr << "sluice-relay: " << job.status().message() << "\n";
    return app::kExitUsage;
  }
  if (flags.listen.empty()) {
    flags.listen = absl::StrCat("127.0.0.1:", job->server.port + kPortsAboveServers + flags.relay);
  }
  if (flags.http_listen.empty()) flags.http_listen = "off";
  const sigset_t signals = server::BlockStopSignals();
  const LogOptions log = flags.log.OptionsFor(job->name);
  const Logger logger(absl::StrCat("relay-", flags.relay), log);
  const SteadyClock clock;
  const absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(flags.transport, logger);
  if (!transport.ok()) {
    logger.Error(transport.status().message());
    return app::kExitUsage;
  }
  const RelayOptions options{.job = *job,
                             .relay = flags.relay,
                             .listen = flags.listen,
                             .advertise = flags.advertise,
                             .upstream = flags.upstream,
                             .transport = *transport,
                             .allow_anonymous = flags.allow_anonymous,
                             .supervised = flags.supervised,
                             .log = log,
                             .http_connections = server::HttpConnectionsMax(flags),
                             .software_version = SLUICE_VERSION,
                             .job_uid = server::RandomBits()};
  absl::StatusOr<std::unique_ptr<Relay>> relay = Relay::Start(options, &clock);
  if (!relay.ok()) return server::FailedToStart(relay.status(), logger);
  const job::JobSpec rack = RackAsShown(*job, flags.relay);
  // A relay that was started again after the end has no part of the job, nor will it.
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
  CLI::App app("Speaks for the workers of one rack of a Sluice job.", "sluice-relay");
  app.set_version_flag("--version", std::string("sluice ") + SLUICE_VERSION);
  app.footer(sluice::relay::kFooter);
  sluice::relay::AddFlags(&app, &flags);
  const std::optional<int> done = sluice::app::ParseFlags(&app, argc, argv);
  return done.has_value() ? *done : sluice::relay::Run(std::move(flags));
}
