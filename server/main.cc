// sluice-server: one shard of a job; shard 0 also runs the coordinator.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/process_usage.h"
#include "base/trace_file.h"
#include "job/file/job_file.h"
#include "job/relays.h"
#include "server/http/server_pages.h"
#include "server/rpc/server.h"
#include "transport/transport.h"
#include "transport/transport_flags.h"

namespace sluice {
namespace {

constexpr int kExitFinished = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr uint32_t kTraceNumber = 10000;  // Of shard 0; workers have their ranks.
constexpr int kExitSignal = 128;          // Plus the signal's number, as shells do.

constexpr char kFooter[] = R"(
Exit codes: 0 the job finished; 1 it failed, the reason is the last line; 2 wrong usage or job file;
128 + N stopped by signal N (130 Ctrl-C, 143 SIGTERM): the whole job is told and ends, in a job with
checkpoints after a last one or 10 s; a second signal ends this process at once. With --supervised a
signal ends this process alone, also with 128 + N, or 0 if the job had finished.

A job of two shards on one host:
  sluice-server --job job.yaml
  sluice-server --job job.yaml --shard 1 --coordinator 127.0.0.1:7070)";

struct Flags {
  LoadJobOptions job;
  uint32_t shard = 0;
  std::string listen;
  std::string advertise;
  std::string coordinator;
  std::string http_listen;
  bool http_tls = false;
  std::string health_listen;
  std::string trace;
  TransportOptions transport;
  bool allow_anonymous = false;
  bool reflection = false;
  bool supervised = false;
  bool quiet = false;
};

void AddFlags(CLI::App* app, Flags* flags) {
  app->add_option("--job", flags->job.path, "Job file (docs/job-file.md)")
      ->required()
      ->type_name("FILE");
  app->add_option("--set", flags->job.set, "Override a key of the job file; repeatable")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->allow_extra_args(false);
  app->add_flag("--dense", flags->job.dense, "Run the job uncompressed");
  app->add_option("--shard", flags->shard,
                  "Which shard of the job this is; 0 is the coordinator too")
      ->type_name("I")
      ->capture_default_str();
  app->add_option("--listen", flags->listen,
                  "Where workers and shards connect; port 0: any free one "
                  "[127.0.0.1, port 7070 + shard]")
      ->type_name("HOST:PORT");
  app->add_option("--advertise", flags->advertise,
                  "What workers are told to connect to [as --listen]; needed with --listen 0.0.0.0")
      ->type_name("HOST:PORT");
  app->add_option("--coordinator", flags->coordinator,
                  "Address of shard 0; needed for other shards")
      ->type_name("HOST:PORT");
  app->add_option("--http-listen", flags->http_listen,
                  "Status page, /metrics, /livez, /readyz and /startupz; port 0: any free one; "
                  "`off`: none [127.0.0.1:7071 on shard 0, off on others]")
      ->type_name("HOST:PORT");
  app->add_flag("--http-tls", flags->http_tls,
                "Serve --http-listen as HTTPS, with --tls-cert and --tls-key");
  app->add_option("--health-listen", flags->health_listen,
                  "A second port with /livez, /readyz and /startupz only, always plaintext: for "
                  "probes that cannot do TLS")
      ->type_name("HOST:PORT");
  app->add_option(
         "--trace", flags->trace,
         "Write here what this process does when, for ui.perfetto.dev (docs/traces.md); at "
         "most 256 MiB")
      ->type_name("FILE");
  AddTransportFlags(app, &flags->transport);
  app->add_flag("--allow-anonymous", flags->allow_anonymous,
                "Let whoever reaches --listen join, though it is not loopback and there is neither "
                "--token-file nor --tls-ca");
  app->add_flag("--reflection", flags->reflection, "Let gRPC clients list the services");
  app->add_flag("--supervised", flags->supervised,
                "Something such as Kubernetes starts this process again whenever it ends: in a job "
                "with checkpoints a signal ends the process, not the job, and when the job has "
                "finished the process stays, to be asked, until it is stopped");
  app->add_flag("--quiet", flags->quiet, "Log warnings and errors only");
}

void SetDefaults(const JobSpec& job, Flags* flags) {
  if (flags->listen.empty()) {
    flags->listen = absl::StrCat("127.0.0.1:", job.server.port + flags->shard);
  }
  if (flags->http_listen.empty()) {
    flags->http_listen =
        flags->shard == 0 ? absl::StrCat("127.0.0.1:", job.server.http_port) : "off";
  }
}

uint64_t RandomBits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// `finished`: a shard that was started again after the end has no part of the job, nor will it.
HttpView ViewOf(const ServerOptions& options, const Server& server, bool finished) {
  return {.job_name = options.job.name,
          .software_version = options.software_version,
          .shard = options.shard,
          .shards = options.job.shards,
          .ready = server.ready() || finished,
          .metrics_enabled = options.job.metrics_enabled,
          .stats = server.Stats(),
          .residual_energy = server.ResidualEnergy(),
          .stages = server.Stages(),
          .cpu_seconds = CpuSecondsOfThisProcess(),
          .snapshots = server.Snapshots(),
          .job = server.Status(),
          .report = server.Report()};
}

struct HttpPort {
  HttpOptions options;
  bool health_only = false;
};

std::vector<HttpPort> HttpPorts(const Flags& flags) {
  std::vector<HttpPort> ports;
  if (flags.http_listen != "off") {
    HttpPort& port = ports.emplace_back();
    port.options.listen = flags.http_listen;
    if (flags.http_tls) {
      port.options.tls_cert = flags.transport.tls_cert;
      port.options.tls_key = flags.transport.tls_key;
    }
  }
  if (!flags.health_listen.empty()) {
    ports.push_back({.options = {.listen = flags.health_listen}, .health_only = true});
  }
  return ports;
}

// Until a signal comes: others may still ask how the job ended.
int StayFinished(const sigset_t& signals, const Logger& logger) {
  logger.Info("the job has finished; this process stays until it is stopped");
  int signal_number = 0;
  (void)sigwait(&signals, &signal_number);
  return kExitFinished;
}

// Until the job has ended or a signal came and was dealt with. Tells `finished` of a good end.
int RunUntilEnd(Server* server, const sigset_t& signals, const Logger& logger,
                std::atomic<bool>* finished) {
  int signal_number = 0;
  for (;;) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};
    const int got = sigtimedwait(&signals, nullptr, &pause);
    if (got > 0 && signal_number != 0) return kExitSignal + got;  // Asked twice: at once.
    if (got > 0) {
      signal_number = got;
      const std::string name = got == SIGINT ? "SIGINT" : "SIGTERM";
      logger.Info("stopping: ", name);
      server->Stop(absl::StrCat("was stopped by ", name));
    }
    const std::optional<absl::Status> outcome = server->Outcome();
    if (!outcome.has_value()) continue;
    if (signal_number != 0) return kExitSignal + signal_number;
    *finished = outcome->ok();
    if (outcome->ok()) return kExitFinished;
    logger.Error(outcome->message());
    return kExitFailed;
  }
}

int Run(Flags flags) {
  absl::StatusOr<JobSpec> job = LoadJob(flags.job);
  if (!job.ok()) {
    std::cerr << "sluice-server: " << job.status().message() << "\n";
    return kExitUsage;
  }
  job = JobOfServers(*job);
  SetDefaults(*job, &flags);
  // Before any thread, so that all of them leave the signals to RunUntilEnd.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const LogLevel lowest = flags.quiet ? LogLevel::kWarning : LogLevel::kInfo;
  const Logger logger(absl::StrCat("shard-", flags.shard), lowest);
  const SteadyClock clock;
  const absl::StatusOr<std::shared_ptr<const Transport>> transport =
      Transport::Open(flags.transport, logger);
  if (!transport.ok()) {
    logger.Error(transport.status().message());
    return kExitUsage;
  }
  if (flags.http_tls && flags.transport.tls_cert.empty()) {
    logger.Error("--http-tls serves the certificate of --tls-cert and --tls-key: give them");
    return kExitUsage;
  }
  std::unique_ptr<TraceFile> trace;
  if (!flags.trace.empty()) {
    absl::StatusOr<std::unique_ptr<TraceFile>> created =
        TraceFile::Create({.path = flags.trace,
                           .process = absl::StrCat("shard ", flags.shard, " of ", job->name),
                           .number = kTraceNumber + flags.shard,
                           .clock = &clock,
                           .logger = logger});
    if (!created.ok()) {
      logger.Error(created.status().message());
      return kExitUsage;
    }
    trace = *std::move(created);
  }
  const ServerOptions options{
      .job = *job,
      .shard = flags.shard,
      .listen = flags.listen,
      .advertise = flags.advertise,
      .coordinator = flags.coordinator,
      .transport = *transport,
      .allow_anonymous = flags.allow_anonymous,
      .reflection = flags.reflection,
      .supervised = flags.supervised,
      .log_lowest = lowest,
      .software_version = SLUICE_VERSION,
      .job_uid = RandomBits(),
      // Wall time goes up from one start to the next, which is all that is asked of it.
      .server_incarnation = static_cast<uint64_t>(absl::ToUnixMicros(absl::Now())),
      .trace = trace.get()};
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, &clock);
  if (!server.ok()) {
    logger.Error(server.status().message());
    return absl::IsInvalidArgument(server.status()) ? kExitUsage : kExitFailed;
  }
  std::atomic<bool> finished = false;
  const std::function<HttpView()> view = [&] { return ViewOf(options, **server, finished); };
  std::vector<std::unique_ptr<HttpServer>> http;
  for (const HttpPort& port : HttpPorts(flags)) {
    const auto pages = port.health_only ? &HealthPage : &ServerPage;
    absl::StatusOr<std::unique_ptr<HttpServer>> started = HttpServer::Start(
        port.options, [pages, &view](const std::string& path) { return pages(path, view); });
    if (!started.ok()) {
      logger.Error(started.status().message());
      return absl::IsInvalidArgument(started.status()) ? kExitUsage : kExitFailed;
    }
    http.push_back(*std::move(started));
    logger.Info(port.health_only ? "health: " : "status page: ", http.back()->url());
  }
  const int code = RunUntilEnd(server->get(), signals, logger, &finished);
  return finished && flags.supervised ? StayFinished(signals, logger) : code;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::KeepFreedMemory();
  sluice::Flags flags;
  CLI::App app("One shard of a Sluice job. Shard 0 also runs the coordinator.", "sluice-server");
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
