// SPDX-License-Identifier: Apache-2.0
// sluice-server: runs one shard of a job; shard 0 also runs the coordinator.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "app/exit_codes.h"
#include "app/flags.h"
#include "app/old_flags.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/trace_file.h"
#include "job/relays.h"
#include "net/grpc/grpc_weakness.h"
#include "net/grpc/transport.h"
#include "server/parent.h"
#include "server/rpc/server.h"
#include "server/serving.h"

namespace sluice::server {
namespace {

// Process number of shard 0 in traces; workers use their ranks.
constexpr uint32_t kTraceNumber = 10000;

constexpr char kFooter[] = R"(
Exit codes: 0 the job finished; 1 it failed, the reason is the last line; 2 wrong usage or job file;
128 + N stopped by signal N (130 Ctrl-C, 143 SIGTERM): the whole job ends, in a job with checkpoints
after a last checkpoint or 10 s; a second signal ends this process at once. With --supervised a
signal ends this process alone, also with 128 + N, or 0 if the job had finished.
A job of two shards on one host:
  sluice-server --job job.yaml
  sluice-server --job job.yaml --shard 1 --coordinator 127.0.0.1:7070)";

struct Flags : ServingFlags {
  job::LoadJobOptions job;
  uint32_t shard = 0;
  std::string listen;
  std::string coordinator;
  std::string trace_file;
  size_t threads = 1;
  bool reflection = false;
  bool supervised = false;
  bool with_parent = false;
};

void AddFlags(CLI::App* app, Flags* flags) {
  app::AddJobFlags(app, &flags->job);
  app->add_option("--shard", flags->shard, "Index of this shard; shard 0 also runs the coordinator")
      ->type_name("I")
      ->capture_default_str();
  app->add_option("--listen", flags->listen,
                  "Where workers and shards connect; port 0: any free one "
                  "[127.0.0.1, port 7070 for shard 0, 7072 for 1, 7073 for 2, ...]")
      ->type_name("HOST:PORT");
  app->add_option("--coordinator", flags->coordinator, "Address of shard 0; needed on other shards")
      ->type_name("HOST:PORT");
  app->add_option(
         "--http-listen", flags->http_listen,
         "Address of the status page, /metrics, /livez, /readyz and /startupz; port 0 chooses a "
         "free port, `off` disables it [127.0.0.1:7071 on shard 0, off on others]")
      ->type_name("HOST:PORT");
  app->add_option("--trace-file", flags->trace_file,
                  "Write a trace of this process to this file, for ui.perfetto.dev "
                  "(docs/traces.md); at most 256 MiB")
      ->type_name("FILE");
  app->add_option("--threads", flags->threads,
                  "Number of threads that sum contributions and encode results")
      ->check(CLI::Range(1, 256))
      ->type_name("N")
      ->capture_default_str();
  app->add_flag("--reflection", flags->reflection, "Let gRPC clients list the services");
  app->add_flag("--supervised", flags->supervised,
                "A supervisor such as Kubernetes restarts this process whenever it ends: in a job "
                "with checkpoints a signal ends the process and not the job, and after the job has "
                "finished the process answers status requests until it is stopped");
  app->add_flag("--with-parent", flags->with_parent,
                "End when standard input ends, and so with the process that holds its other end. "
                "Print one line of JSON, with the addresses of the ports, once they listen");
  AddServingFlags(app, flags);
  app::AddOldOption(app, "--trace", "--trace-file", &flags->trace_file);
}

absl::Status SetDefaults(const job::JobSpec& job, Flags* flags) {
  if (flags->listen.empty()) {
    const absl::StatusOr<uint16_t> port = job::DefaultGrpcPort(job.server, flags->shard);
    if (!port.ok()) return port.status();
    flags->listen = absl::StrCat("127.0.0.1:", *port);
  }
  if (flags->http_listen.empty()) {
    flags->http_listen =
        flags->shard == 0 ? absl::StrCat("127.0.0.1:", job.server.http_port) : "off";
  }
  return absl::OkStatus();
}

// Returns null if --trace-file is not set.
absl::StatusOr<std::unique_ptr<TraceFile>> BeginTrace(const Flags& flags, const job::JobSpec& job,
                                                      const Clock* clock, const Logger& logger) {
  if (flags.trace_file.empty()) return nullptr;
  return TraceFile::Create({.path = flags.trace_file,
                            .process = absl::StrCat("shard ", flags.shard, " of ", job.name),
                            .number = kTraceNumber + flags.shard,
                            .clock = clock,
                            .logger = logger});
}

absl::StatusOr<job::JobSpec> JobToRun(const job::LoadJobOptions& options) {
  if (options.path != "-") return job::LoadJob(options);
  const absl::StatusOr<std::string> text = ReadJobText(STDIN_FILENO);
  if (!text.ok()) return text.status();
  return job::LoadJobFromText(*text, "standard input", options);
}

// Prints the addresses for the process that started this one.
void AnnouncePorts(const Server& server,
                   const std::vector<std::unique_ptr<net::HttpServer>>& http) {
  std::cout << R"({"address": ")" << server.address() << R"(", "status_page": ")"
            << (http.empty() ? "" : http.front()->url()) << "\"}" << std::endl;
}

int Run(Flags flags) {
  absl::StatusOr<job::JobSpec> job = JobToRun(flags.job);
  if (!job.ok()) {
    std::cerr << "sluice-server: " << job.status().message() << "\n";
    return app::kExitUsage;
  }
  job = job::JobOfServers(*job);
  if (absl::Status status = SetDefaults(*job, &flags); !status.ok()) {
    std::cerr << "sluice-server: " << status.message() << "\n";
    return app::kExitUsage;
  }
  const sigset_t signals = BlockStopSignals();
  const LogOptions log = flags.log.OptionsFor(job->name);
  const Logger logger(absl::StrCat("shard-", flags.shard), log);
  if (flags.shard == 0) {
    for (const std::string& warning : job->file_warnings) logger.Warning(warning);
  }
  const SteadyClock clock;
  const absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(flags.transport, logger);
  if (!transport.ok()) {
    logger.Error(transport.status().message());
    return app::kExitUsage;
  }
  const absl::StatusOr<std::unique_ptr<TraceFile>> trace = BeginTrace(flags, *job, &clock, logger);
  if (!trace.ok()) {
    logger.Error(trace.status().message());
    return app::kExitUsage;
  }
  const ServerOptions options{.job = *job,
                              .shard = flags.shard,
                              .listen = flags.listen,
                              .advertise = flags.advertise,
                              .coordinator = flags.coordinator,
                              .transport = *transport,
                              .allow_anonymous = flags.allow_anonymous,
                              .reflection = flags.reflection,
                              .supervised = flags.supervised,
                              .log = log,
                              .http_connections = HttpConnectionsMax(flags),
                              .threads = flags.threads,
                              .software_version = SLUICE_VERSION,
                              .job_uid = RandomBits(),
                              .trace = trace->get()};
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, &clock);
  if (!server.ok()) return FailedToStart(server.status(), logger);
  // A shard restarted after the end of the job gets no part of it, but counts as ready.
  std::atomic<bool> finished = false;
  const std::function<HttpView()> view = [&] {
    HttpView shown = ViewOf(**server, *job, flags.shard);
    shown.ready = shown.ready || finished;
    return shown;
  };
  const auto http =
      ServeHttp(flags, {.listen = flags.listen, .port = (*server)->port()}, view, logger);
  if (!http.ok()) return FailedToStart(http.status(), logger);
  Serving serving{.outcome = [&] { return (*server)->Outcome(); },
                  .stop = [&](absl::string_view reason) { (*server)->Stop(reason); }};
  if (flags.with_parent) {
    AnnouncePorts(**server, *http);
    serving.parent_has_ended = [] { return HasEnded(STDIN_FILENO); };
  }
  const int code = RunUntilEnd(serving, /*ends_at_once=*/false, signals, logger);
  finished = code == app::kExitFinished;
  return finished && flags.supervised ? StayFinished(signals, logger) : code;
}

}  // namespace
}  // namespace sluice::server

int main(int argc, char** argv) {
  sluice::KeepFreedMemory();
  sluice::RaiseDescriptorLimit();
  sluice::server::Flags flags;
  if (const char* const proxy = std::getenv("grpc_proxy")) flags.transport.grpc_proxy = proxy;
  CLI::App app("One shard of a Sluice job. Shard 0 also runs the coordinator.", "sluice-server");
  app.set_version_flag("--version",
                       "sluice " SLUICE_VERSION " (gRPC " + sluice::net::LinkedGrpcVersion() + ")");
  app.footer(sluice::server::kFooter);
  sluice::server::AddFlags(&app, &flags);
  const std::optional<int> done = sluice::app::ParseFlags(&app, argc, argv);
  return done.has_value() ? *done : sluice::server::Run(std::move(flags));
}
