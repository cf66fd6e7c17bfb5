// sluice-relay: speaks for the workers of one rack. docs/relay.md.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/process_usage.h"
#include "job/file/job_file.h"
#include "relay/relay.h"
#include "server/http/server_pages.h"
#include "transport/transport.h"
#include "transport/transport_flags.h"

namespace sluice {
namespace {

constexpr int kExitFinished = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitSignal = 128;  // Plus the signal's number, as shells do.
constexpr int kPortsAboveServers = 100;

constexpr char kFooter[] = R"(
Exit codes: 0 the job finished; 1 it failed, the reason is the last line; 2 wrong usage or job file;
128 + N stopped by signal N: the whole job is told and ends. With --supervised, in a job with
checkpoints, a signal ends this process alone, and the job waits for its next.

The first of two racks of two workers, with the job's server elsewhere:
  sluice-relay --job job.yaml --relay 0 --upstream server:7070 --listen 10.0.0.1:7170
  sluice-worker --job job.yaml --rank 0 --coordinator 10.0.0.1:7170
  sluice-worker --job job.yaml --rank 1 --coordinator 10.0.0.1:7170)";

struct Flags {
  LoadJobOptions job;
  uint32_t relay = 0;
  std::string upstream = "127.0.0.1:7070";
  std::string listen;
  std::string advertise;
  std::string http_listen = "off";
  TransportOptions transport;
  bool allow_anonymous = false;
  bool supervised = false;
  bool quiet = false;
};

void AddFlags(CLI::App* app, Flags* flags) {
  app->add_option("--job", flags->job.path, "Job file, with a `relays` section (docs/job-file.md)")
      ->required()
      ->type_name("FILE");
  app->add_option("--set", flags->job.set, "Override a key of the job file; repeatable")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->allow_extra_args(false);
  app->add_flag("--dense", flags->job.dense, "Run the job uncompressed");
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
  app->add_option("--advertise", flags->advertise,
                  "What workers are told to connect to [as --listen]; needed with --listen 0.0.0.0")
      ->type_name("HOST:PORT");
  app->add_option("--http-listen", flags->http_listen,
                  "Status page and /metrics of this rack; port 0: any free one; `off`: none")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  AddTransportFlags(app, &flags->transport);
  app->add_flag("--allow-anonymous", flags->allow_anonymous,
                "Let whoever reaches --listen join, though it is not loopback and there is neither "
                "--token-file nor --tls-ca");
  app->add_flag("--supervised", flags->supervised,
                "Something such as Kubernetes starts this process again whenever it ends: in a job "
                "with checkpoints a signal ends the process, not the job");
  app->add_flag("--quiet", flags->quiet, "Log warnings and errors only");
}

uint64_t RandomBits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

HttpView ViewOf(const RelayOptions& options, const Server& rack) {
  return {.job_name = absl::StrCat(options.job.name, "-rack-", options.relay),
          .software_version = options.software_version,
          .shard = 0,
          .shards = options.job.shards,
          .ready = rack.ready(),
          .metrics_enabled = options.job.metrics_enabled,
          .stats = rack.Stats(),
          .residual_energy = rack.ResidualEnergy(),
          .stages = rack.Stages(),
          .cpu_seconds = CpuSecondsOfThisProcess(),
          .snapshots = rack.Snapshots(),
          .job = rack.Status(),
          .report = rack.Report()};
}

int RunUntilEnd(Relay* relay, bool outlived, const sigset_t& signals, const Logger& logger) {
  int signal_number = 0;
  for (;;) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};
    const int got = sigtimedwait(&signals, nullptr, &pause);
    if (got > 0 && (signal_number != 0 || outlived)) return kExitSignal + got;
    if (got > 0) {
      signal_number = got;
      const std::string name = got == SIGINT ? "SIGINT" : "SIGTERM";
      logger.Info("stopping: ", name);
      relay->Stop(absl::StrCat("was stopped by ", name));
    }
    const std::optional<absl::Status> outcome = relay->Outcome();
    if (!outcome.has_value()) continue;
    if (signal_number != 0) return kExitSignal + signal_number;
    if (outcome->ok()) return kExitFinished;
    logger.Error(outcome->message());
    return kExitFailed;
  }
}

int Run(Flags flags) {
  const absl::StatusOr<JobSpec> job = LoadJob(flags.job);
  if (!job.ok()) {
    std::cerr << "sluice-relay: " << job.status().message() << "\n";
    return kExitUsage;
  }
  if (flags.listen.empty()) {
    flags.listen = absl::StrCat("127.0.0.1:", job->server.port + kPortsAboveServers + flags.relay);
  }
  // Before any thread, so that all of them leave the signals to RunUntilEnd.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const LogLevel lowest = flags.quiet ? LogLevel::kWarning : LogLevel::kInfo;
  const Logger logger(absl::StrCat("relay-", flags.relay), lowest);
  const SteadyClock clock;
  const absl::StatusOr<std::shared_ptr<const Transport>> transport =
      Transport::Open(flags.transport, logger);
  if (!transport.ok()) {
    logger.Error(transport.status().message());
    return kExitUsage;
  }
  const RelayOptions options{
      .job = *job,
      .relay = flags.relay,
      .listen = flags.listen,
      .advertise = flags.advertise,
      .upstream = flags.upstream,
      .transport = *transport,
      .allow_anonymous = flags.allow_anonymous,
      .log_lowest = lowest,
      .software_version = SLUICE_VERSION,
      .job_uid = RandomBits(),
      // Wall time goes up from one start to the next, which is all that is asked of it.
      .server_incarnation = static_cast<uint64_t>(absl::ToUnixMicros(absl::Now()))};
  absl::StatusOr<std::unique_ptr<Relay>> relay = Relay::Start(options, &clock);
  if (!relay.ok()) {
    logger.Error(relay.status().message());
    return absl::IsInvalidArgument(relay.status()) ? kExitUsage : kExitFailed;
  }
  std::unique_ptr<HttpServer> http;
  if (flags.http_listen != "off") {
    absl::StatusOr<std::unique_ptr<HttpServer>> started =
        HttpServer::Start({.listen = flags.http_listen}, [&](const std::string& path) {
          return ServerPage(path, [&] { return ViewOf(options, (*relay)->rack()); });
        });
    if (!started.ok()) {
      logger.Error(started.status().message());
      return absl::IsInvalidArgument(started.status()) ? kExitUsage : kExitFailed;
    }
    http = *std::move(started);
  }
  const bool outlived = flags.supervised && job->checkpoint.enabled();
  return RunUntilEnd(relay->get(), outlived, signals, logger);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::KeepFreedMemory();
  sluice::Flags flags;
  CLI::App app("Speaks for the workers of one rack of a Sluice job.", "sluice-relay");
  app.set_version_flag("--version", std::string("sluice ") + SLUICE_VERSION);
  app.footer(sluice::kFooter);
  sluice::AddFlags(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : sluice::kExitUsage;
  }
  return sluice::Run(std::move(flags));
}
