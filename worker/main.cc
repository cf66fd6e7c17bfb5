// SPDX-License-Identifier: Apache-2.0
// sluice-worker: trains the model of a job file as one of its ranks.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "app/exit_codes.h"
#include "app/flags.h"
#include "app/log_flags.h"
#include "app/old_flags.h"
#include "app/signal_watch.h"
#include "app/transport_flags.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/descriptors.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/process_usage.h"
#include "base/trace_file.h"
#include "compress/gpu/gpu_encoder.h"
#include "compress/gpu/kernels/device.h"
#include "job/momentum.h"
#include "job/relays.h"
#include "net/grpc/transport.h"
#include "net/http/http_server.h"
#include "worker/http/current_client.h"
#include "worker/http/worker_pages.h"
#include "worker/launch_environment.h"
#include "worker/rpc/remote_client.h"
#include "worker/train/device.h"
#include "worker/train/train.h"
#include "worker/worker_report.h"

namespace sluice::worker {
namespace {

constexpr absl::Duration kStopGrace = absl::Seconds(3);
// Maximum number of consecutive sessions that roll back before they finish a step. A few may occur
// if several processes are lost in quick succession. More indicate a problem such as a shard that
// only this worker cannot reach.
constexpr int kFruitlessSessionsMax = 20;

constexpr char kDescription[] =
    "Trains the model of a Sluice job as one of its workers. `sluice run JOB.yaml` starts the "
    "servers and workers of a job on one machine. On several machines, start sluice-server for "
    "each shard and sluice-worker for each rank.";
constexpr char kFooter[] =
    "Without --rank, the rank is taken from RANK, SLURM_PROCID or JOB_COMPLETION_INDEX, and "
    "WORLD_SIZE or\n"
    "SLURM_NTASKS must agree with the job's number of workers.\n"
    "Exit status: 0 trained to the end; 1 failed (the last line of the log says why); 2 wrong "
    "flags or job file;\n"
    "75 lost the others, in a job with checkpoints: start it again; 128 + N ended by signal N.";

struct Flags {
  job::LoadJobOptions job;
  std::string coordinator = "127.0.0.1:7070";
  std::optional<uint32_t> rank;
  std::optional<uint32_t> relay;
  std::string report;
  std::string http_listen;
  bool http_tls = false;
  std::string http_client_ca;
  std::vector<std::string> http_host;
  uint64_t quality_interval = 100;
  size_t encode_threads = 1;
  std::string trace_file;
  std::string threads;
  bool supervised = false;
  app::LogFlags log;
  net::TransportOptions transport;
};

void AddOldNames(CLI::App* app, Flags* flags) {
  app::AddOldOption(app, "--metrics-listen", "--http-listen", &flags->http_listen);
  app::AddOldFlag(app, "--metrics-tls", "--http-tls", &flags->http_tls);
  app::AddOldOption(app, "--metrics-client-ca", "--http-client-ca", &flags->http_client_ca);
  app::AddOldOption(app, "--metrics-host", "--http-host", &flags->http_host)->delimiter(',');
  app::AddOldOption(app, "--quality-every", "--quality-interval", &flags->quality_interval);
  app::AddOldOption(app, "--trace", "--trace-file", &flags->trace_file);
}

void AddFlags(CLI::App* app, Flags* flags) {
  app::AddJobFlags(app, &flags->job);
  app->add_option("--coordinator", flags->coordinator,
                  "Address of shard 0, or of this worker's relay in a job with relays")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app->add_option("--rank", flags->rank, "This worker's number, from 0")->type_name("R");
  app->add_option("--relay", flags->relay,
                  "In a job with relays: the rank, from --rank or the environment, counts within "
                  "the rack of relay K, as do WORLD_SIZE and SLURM_NTASKS")
      ->type_name("K");
  app->add_option("--report", flags->report, "Write the run's figures to this file, as JSON")
      ->type_name("FILE");
  app->add_option("--http-listen", flags->http_listen,
                  "Serve this worker's /metrics (docs/metrics.md), /livez, /readyz and /startupz "
                  "here; port 0 selects a free port [none]")
      ->type_name("HOST:PORT");
  app->add_flag("--http-tls", flags->http_tls,
                "Serve --http-listen as HTTPS, with --tls-cert and --tls-key");
  app->add_option("--http-client-ca", flags->http_client_ca,
                  "With --http-tls: answer only clients with a certificate of a CA in this file")
      ->type_name("FILE");
  app->add_option("--http-host", flags->http_host,
                  "Additional host names that --http-listen accepts, besides IP addresses, "
                  "localhost and this host's name")
      ->type_name("NAME,...")
      ->delimiter(',');
  app->add_option("--quality-interval", flags->quality_interval,
                  "With --http-listen: number of steps in which the compression loss of every "
                  "chunk is measured once; 0 disables it")
      ->type_name("STEPS")
      ->capture_default_str();
  app->add_option("--encode-threads", flags->encode_threads,
                  "Number of threads that encode gradients, and of those that apply results. More "
                  "than 1 helps "
                  "if training leaves cores idle")
      ->type_name("N")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app->add_option("--trace-file", flags->trace_file,
                  "Write a trace of this process to this file, for ui.perfetto.dev "
                  "(docs/traces.md); at most 256 MiB")
      ->type_name("FILE");
  app->add_option("--threads", flags->threads,
                  "Threads inside LibTorch's operations. The bits of the result depend on it, so "
                  "use the same number for all workers, and after a restart on another machine. "
                  "auto: the available cores, divided by LOCAL_WORLD_SIZE if that is set (default: "
                  "1 if the job has several workers, otherwise LibTorch's choice)")
      ->type_name("N|auto");
  app->add_flag(
      "--supervised", flags->supervised,
      "A supervisor such as Kubernetes restarts this process: in a job with checkpoints, a signal "
      "ends only this process, at once, and the job waits for this rank's next process");
  app::AddLogFlags(app, &flags->log);
  app::AddTransportFlags(app, &flags->transport);
  AddOldNames(app, flags);
  app->set_version_flag("--version", "sluice-worker " SLUICE_VERSION);
  app->footer(kFooter);
}

// Logs the outcome, writes the report and returns the exit status.
int Conclude(const job::JobSpec& spec, uint32_t rank, const Flags& flags,
             const absl::StatusOr<TrainReport>& report, int signal, const Logger& logger) {
  int exit_code = 0;
  std::string json;
  std::string error;
  if (report.ok()) {
    json = SuccessJson(spec, rank, *report);
  } else {
    exit_code = signal != 0                   ? app::kExitSignal + signal
                : IsRollback(report.status()) ? app::kExitLostPeers
                                              : app::kExitFailed;
    error = signal != 0 ? "stopped by a signal" : std::string(report.status().message());
    json = FailureJson(spec, rank, exit_code, error);
  }
  if (!flags.report.empty()) {
    if (absl::Status status = WriteReport(flags.report, json); !status.ok()) {
      if (exit_code == 0) {
        exit_code = app::kExitFailed;
        error = std::string(status.message());
      } else {
        logger.Warning(status.message());
      }
    }
  }
  if (exit_code != 0) {
    logger.Write(LogLevel::kError, {.event = "worker_failed", .rank = rank}, error);
  } else {
    const absl::Duration wall = absl::Seconds(report->wall_seconds);
    logger.Write(LogLevel::kInfo, {.event = "worker_finished", .rank = rank, .step = report->steps},
                 absl::StrCat("finished: ", report->steps, " steps in ",
                              absl::FormatDuration(absl::Trunc(wall, absl::Milliseconds(100))),
                              ", parameters' sha256 ", report->parameters_sha256));
  }
  return exit_code;
}

// In a job with relays, the worker joins its rack's job.
RemoteSessionOptions SessionOptionsOf(const job::JobSpec& spec, const std::string& coordinator,
                                      uint32_t rank) {
  if (!spec.relays.enabled()) return OptionsFromJob(spec, coordinator, rank);
  const job::RackPlace place = job::FindRackPlace(spec, rank);
  return OptionsFromJob(job::JobOfRack(spec, place.relay), coordinator, place.rank);
}

// Trains to the end, with a new session after each rollback.
absl::StatusOr<TrainReport> Train(const job::JobSpec& spec, RemoteSessionOptions session_options,
                                  uint32_t rank, CurrentClient* client, TrainOptions options,
                                  const Logger& logger) {
  if (spec.checkpoint.enabled()) {
    absl::StatusOr<std::shared_ptr<const TrainingData>> data = LoadTrainingData(spec, rank);
    if (!data.ok()) return data.status();
    options.data = *std::move(data);
  }
  bool progressed = false;
  options.on_progress = [&progressed](const Progress&) { progressed = true; };
  for (int fruitless = 0;;) {
    JobClient* const current = client->Replace(MakeRemoteClient(session_options));
    absl::StatusOr<TrainReport> report = RunTraining(spec, rank, current, options, logger);
    if (!IsRollback(report.status()) || options.stop->load()) return report;
    fruitless = progressed ? 1 : fruitless + 1;
    progressed = false;
    if (fruitless == kFruitlessSessionsMax) {
      return RollbackError(absl::StrCat(report.status().message(), "; no step was finished in ",
                                        fruitless, " consecutive tries, so this worker gives up"));
    }
    logger.Write(LogLevel::kWarning, {.event = "joining_again", .rank = rank},
                 absl::StrCat(report.status().message(), "; joining again"));
    session_options.rejoining = true;
  }
}

// Returns the device that holds this worker's gradients and can encode them, or null if gradients
// are encoded in host memory.
std::unique_ptr<compress::EncodingDevice> OpenDevice(const job::JobSpec& spec, uint32_t rank,
                                                     const Logger& logger) {
  const absl::StatusOr<ChosenDevice> chosen = ChooseDevice(spec, rank, FindDevices());
  // Training reports missing devices.
  if (!chosen.ok() || chosen->gpus.empty() ||
      spec.training.encode_location == job::EncodeLocation::kHost)
    return nullptr;
  std::string problem;
  std::unique_ptr<compress::gpu::Device> gpu =
      compress::gpu::MakeCudaDevice(chosen->gpus.front(), &problem);
  if (gpu != nullptr) return compress::gpu::MakeEncodingDevice(std::move(gpu));
  logger.Warning("gradients are encoded on the processor, not on GPU ", chosen->gpus.front(), ": ",
                 problem);
  return nullptr;
}

// Returns null without --http-listen.
absl::StatusOr<std::unique_ptr<net::HttpServer>> ServeMetrics(const Flags& flags,
                                                              const job::JobSpec& spec,
                                                              uint32_t rank,
                                                              const CurrentClient& client,
                                                              const Logger& logger) {
  if (flags.http_listen.empty()) return nullptr;
  net::HttpOptions options{.listen = flags.http_listen, .names = flags.http_host};
  if (!flags.http_client_ca.empty() && !flags.http_tls) {
    return absl::InvalidArgumentError("--http-client-ca needs --http-tls");
  }
  if (flags.http_tls) {
    if (flags.transport.tls_cert.empty()) {
      return absl::InvalidArgumentError(
          "--http-tls needs a certificate: give --tls-cert and --tls-key");
    }
    options.tls_cert = flags.transport.tls_cert;
    options.tls_key = flags.transport.tls_key;
    options.tls_client_ca = flags.http_client_ca;
  }
  const std::function<WorkerView()> view = [&spec, rank, &client] {
    return WorkerView{.job_name = spec.name,
                      .software_version = SLUICE_VERSION,
                      .rank = rank,
                      .metrics_enabled = spec.metrics_enabled,
                      .cpu_seconds = CpuSecondsOfThisProcess(),
                      .figures = client.figures()};
  };
  absl::StatusOr<std::unique_ptr<net::HttpServer>> server = net::HttpServer::Start(
      std::move(options), [view](const std::string& path) { return WorkerPage(path, view); });
  if (server.ok()) logger.Info("metrics: ", (*server)->url(), "metrics");
  return server;
}

// Returns null without --trace-file.
absl::StatusOr<std::unique_ptr<TraceFile>> BeginTrace(const Flags& flags, const job::JobSpec& spec,
                                                      uint32_t rank, const Clock* clock,
                                                      const Logger& logger) {
  if (flags.trace_file.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<TraceFile>> trace =
      TraceFile::Create({.path = flags.trace_file,
                         .process = absl::StrCat("worker ", rank, " of ", spec.name),
                         .number = rank,
                         .clock = clock,
                         .logger = logger});
  if (trace.ok()) (*trace)->NameThread("training");
  return trace;
}

// This process's place in the job, from flags, job file and environment.
struct Place {
  job::JobSpec spec;
  uint32_t rank = 0;
  int threads = 0;
};

absl::StatusOr<Place> FindPlace(const Flags& flags) {
  const auto environment = [](const char* name) { return std::getenv(name); };
  absl::StatusOr<job::JobSpec> spec = job::LoadJob(flags.job);
  if (!spec.ok()) return spec.status();
  const absl::StatusOr<uint32_t> rank = FindRank(flags.rank, flags.relay, *spec, environment);
  if (!rank.ok()) return rank.status();
  const absl::StatusOr<int> threads = FindThreads(flags.threads, AvailableCores(), environment);
  if (!threads.ok()) return threads.status();
  return Place{*std::move(spec), *rank, *threads};
}

// Logs notes and warnings about the job before rank 0 joins.
void LogNotes(const job::JobSpec& spec, const Logger& logger) {
  if (const std::string note = job::MomentumNote(spec); !note.empty()) logger.Info(note);
  for (const std::string& warning : job::JobWarnings(spec)) logger.Warning(warning);
}

int Run(const Flags& flags) {
  const absl::StatusOr<Place> place = FindPlace(flags);
  if (!place.ok()) {
    const Logger logger("worker", flags.log.OptionsFor(""));
    // A job file may have several problems.
    for (const absl::string_view problem : absl::StrSplit(place.status().message(), '\n')) {
      logger.Error(problem);
    }
    return app::kExitUsage;
  }
  const job::JobSpec& spec = place->spec;
  const uint32_t rank = place->rank;
  const Logger logger(absl::StrCat("worker-", rank), flags.log.OptionsFor(spec.name));
  if (rank == 0) LogNotes(spec, logger);
  RemoteSessionOptions session_options = SessionOptionsOf(spec, flags.coordinator, rank);
  session_options.logger = logger;
  absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(flags.transport, logger);
  if (!transport.ok()) {
    logger.Error(transport.status().message());
    return app::kExitUsage;
  }
  session_options.transport = *std::move(transport);
  const std::string warning = session_options.transport->WarningFor(flags.coordinator);
  if (!warning.empty()) logger.Warning(warning);
  const SteadyClock clock;
  const absl::StatusOr<std::unique_ptr<TraceFile>> trace =
      BeginTrace(flags, spec, rank, &clock, logger);
  if (!trace.ok()) {
    logger.Error(trace.status().message());
    return app::kExitUsage;
  }
  session_options.trace = trace->get();
  session_options.clock = &clock;
  const std::unique_ptr<compress::EncodingDevice> device = OpenDevice(spec, rank, logger);
  session_options.device = device.get();
  session_options.encode_threads = flags.encode_threads;
  CurrentClient client;
  const absl::StatusOr<std::unique_ptr<net::HttpServer>> metrics =
      ServeMetrics(flags, spec, rank, client, logger);
  if (!metrics.ok()) {
    logger.Error(metrics.status().message());
    return absl::IsInvalidArgument(metrics.status()) ? app::kExitUsage : app::kExitFailed;
  }
  if (*metrics != nullptr) session_options.quality_interval = flags.quality_interval;
  std::atomic<bool> stop = false;
  TrainOptions options;
  options.threads = place->threads;
  options.stop = &stop;
  options.on_trained = [&](const TrainReport& trained) {
    if (flags.report.empty()) return;
    // Ignore errors here: the report is written again at the end, and a failure is reported then.
    (void)WriteReport(flags.report, SuccessJson(spec, rank, trained));
  };
  app::SignalWatch watch(
      [&](int signal) {
        if (flags.supervised && spec.checkpoint.enabled()) {
          logger.Info("stopped by signal ", signal, "; the job waits for this rank's next process");
          std::_Exit(app::kExitSignal + signal);
        }
        logger.Info("stopping: signal ", signal);
        stop = true;
        client.Abandon("stopped by a signal");
      },
      kStopGrace);
  const absl::StatusOr<TrainReport> report =
      Train(spec, std::move(session_options), rank, &client, options, logger);
  return Conclude(spec, rank, flags, report, watch.received(), logger);
}

}  // namespace
}  // namespace sluice::worker

int main(int argc, char** argv) {
  sluice::KeepFreedMemory();
  sluice::RaiseDescriptorLimit();
  sluice::app::BlockStopSignals();
  sluice::worker::Flags flags;
  if (const char* const proxy = std::getenv("grpc_proxy")) flags.transport.grpc_proxy = proxy;
  CLI::App app(sluice::worker::kDescription, "sluice-worker");
  sluice::worker::AddFlags(&app, &flags);
  const std::optional<int> done = sluice::app::ParseFlags(&app, argc, argv);
  return done.has_value() ? *done : sluice::worker::Run(flags);
}
