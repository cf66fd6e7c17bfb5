// sluice-worker: trains the model of a job file as one of its ranks.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/cores.h"
#include "base/exit_codes.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/mutex.h"
#include "job/file/job_file.h"
#include "job/relays.h"
#include "transport/transport.h"
#include "transport/transport_flags.h"
#include "worker/launch_environment.h"
#include "worker/rpc/remote_session.h"
#include "worker/signal_watch.h"
#include "worker/train/train.h"
#include "worker/worker_report.h"

namespace sluice {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitBySignal = 128;
constexpr absl::Duration kStopGrace = absl::Seconds(3);
// Sessions in a row that end in a rollback before a step is done. Losses in quick succession may
// cause a few; more are a shard that everybody but this worker reaches, or the like.
constexpr int kFruitlessSessionsMax = 20;

constexpr char kDescription[] =
    "Trains the model of a Sluice job as one of its workers. `sluice run JOB.yaml` starts the "
    "servers and workers "
    "of a job on one machine; over several machines start sluice-server for each shard, and this "
    "once for each rank.";
constexpr char kFooter[] =
    "Without --rank, the rank is taken from RANK, SLURM_PROCID or JOB_COMPLETION_INDEX, and "
    "WORLD_SIZE or\n"
    "SLURM_NTASKS must agree with the job's number of workers.\n"
    "Exit status: 0 trained to the end; 1 failed (the last line of the log says why); 2 wrong "
    "flags or job file;\n"
    "75 lost the others, in a job with checkpoints: start it again; 128 + N ended by signal N.";

struct Flags {
  LoadJobOptions job;
  std::string coordinator = "127.0.0.1:7070";
  std::optional<uint32_t> rank;
  std::string report;
  std::string threads;
  bool supervised = false;
  bool quiet = false;
  TransportOptions transport;
};

void AddFlags(CLI::App* app, Flags* flags) {
  app->add_option("--job", flags->job.path, "The job file")->required()->type_name("JOB.yaml");
  app->add_option("--set", flags->job.set,
                  "Override a key of the job file, as in --set optimizer.lr=0.1; may be repeated. "
                  "Every server and "
                  "worker of a job needs the same ones")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app->add_flag("--dense", flags->job.dense, "Uncompressed, with the job file's baseline: applied");
  app->add_option("--coordinator", flags->coordinator,
                  "Address of shard 0; in a job with relays of this worker's")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app->add_option("--rank", flags->rank, "This worker's number, from 0")->type_name("R");
  app->add_option("--report", flags->report, "Write the run's figures here, as JSON")
      ->type_name("FILE");
  app->add_option("--threads", flags->threads,
                  "Threads inside LibTorch's operations. Bits of the result depend on it, so all "
                  "workers need the same, and one that is started again on another machine what it "
                  "had. auto: the cores it may use, divided by LOCAL_WORLD_SIZE if that is set "
                  "(default: 1 if the job has several workers, else LibTorch's choice)")
      ->type_name("N|auto");
  app->add_flag(
      "--supervised", flags->supervised,
      "Something such as Kubernetes starts this process again: in a job with checkpoints a "
      "signal ends the process at once and not the job, which waits for this rank's next");
  app->add_flag("--quiet", flags->quiet, "Log warnings and errors only");
  AddTransportFlags(app, &flags->transport);
  app->set_version_flag("--version", "sluice-worker " SLUICE_VERSION);
  app->footer(kFooter);
}

// Logs the outcome, leaves the report, and gives the exit status.
int Conclude(const JobSpec& spec, uint32_t rank, const Flags& flags,
             const absl::StatusOr<TrainReport>& report, int signal, const Logger& logger) {
  int exit_code = 0;
  std::string json;
  std::string error;
  if (report.ok()) {
    json = SuccessJson(spec, rank, *report);
  } else {
    exit_code = signal != 0                   ? kExitBySignal + signal
                : IsRollback(report.status()) ? kExitLostPeers
                                              : kExitFailure;
    error = signal != 0 ? "stopped by a signal" : std::string(report.status().message());
    json = FailureJson(spec, rank, exit_code, error);
  }
  if (!flags.report.empty()) {
    if (absl::Status status = WriteReport(flags.report, json); !status.ok()) {
      if (exit_code == 0) {
        exit_code = kExitFailure;
        error = std::string(status.message());
      } else {
        logger.Warning(status.message());
      }
    }
  }
  if (exit_code != 0) {
    logger.Error(error);
  } else {
    logger.Info("finished: ", report->steps, " steps in ",
                absl::FormatDuration(
                    absl::Trunc(absl::Seconds(report->wall_seconds), absl::Milliseconds(100))),
                ", parameters' sha256 ", report->parameters_sha256);
  }
  return exit_code;
}

// The session of now, for the thread that hears of signals.
class CurrentSession {
 public:
  Session* Replace(std::unique_ptr<Session> session) {
    MutexLock lock(&mutex_);
    session_ = std::move(session);
    return session_.get();
  }
  void Abandon(absl::string_view reason) {
    MutexLock lock(&mutex_);
    if (session_ != nullptr) session_->Abandon(reason);
  }

 private:
  Mutex mutex_;
  std::unique_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);
};

// In a job with relays a session is with the rack's.
RemoteSessionOptions SessionOptionsOf(const JobSpec& spec, const std::string& coordinator,
                                      uint32_t rank) {
  if (!spec.relays.enabled()) return OptionsFromJob(spec, coordinator, rank);
  const RackPlace place = FindRackPlace(spec, rank);
  return OptionsFromJob(JobOfRack(spec, place.relay), coordinator, place.rank);
}

// Trains to the end, through as many sessions as the job's rollbacks make of it.
absl::StatusOr<TrainReport> Train(const JobSpec& spec, RemoteSessionOptions session_options,
                                  uint32_t rank, CurrentSession* session, TrainOptions options,
                                  const Logger& logger) {
  if (spec.checkpoint.enabled()) {
    absl::StatusOr<std::shared_ptr<const TrainingData>> data = LoadTrainingData(spec, rank);
    if (!data.ok()) return data.status();
    options.data = *std::move(data);
  }
  bool progressed = false;
  options.on_progress = [&progressed](const Progress&) { progressed = true; };
  for (int fruitless = 0;;) {
    Session* const current = session->Replace(MakeRemoteSession(session_options));
    absl::StatusOr<TrainReport> report = RunTraining(spec, rank, current, options, logger);
    if (!IsRollback(report.status()) || options.stop->load()) return report;
    fruitless = progressed ? 1 : fruitless + 1;
    progressed = false;
    if (fruitless == kFruitlessSessionsMax) {
      return RollbackError(absl::StrCat(report.status().message(), "; no step was done in ",
                                        fruitless, " tries in a row, so this worker gives up"));
    }
    logger.Warning(report.status().message(), "; joining again");
    session_options.rejoining = true;
  }
}

int Run(const Flags& flags) {
  const absl::StatusOr<JobSpec> spec = LoadJob(flags.job);
  if (!spec.ok()) {
    Logger("worker").Error(spec.status().message());
    return kExitUsage;
  }
  const absl::StatusOr<uint32_t> rank =
      FindRank(flags.rank, *spec, [](const char* name) { return std::getenv(name); });
  if (!rank.ok()) {
    Logger("worker").Error(rank.status().message());
    return kExitUsage;
  }
  const absl::StatusOr<int> threads = FindThreads(
      flags.threads, AvailableCores(), [](const char* name) { return std::getenv(name); });
  if (!threads.ok()) {
    Logger("worker").Error(threads.status().message());
    return kExitUsage;
  }
  const Logger logger(absl::StrCat("worker-", *rank),
                      flags.quiet ? LogLevel::kWarning : LogLevel::kInfo);
  if (*rank == 0) {
    for (const std::string& warning : JobWarnings(*spec)) logger.Warning(warning);
  }
  RemoteSessionOptions session_options = SessionOptionsOf(*spec, flags.coordinator, *rank);
  session_options.logger = logger;
  absl::StatusOr<std::shared_ptr<const Transport>> transport =
      Transport::Open(flags.transport, logger);
  if (!transport.ok()) {
    logger.Error(transport.status().message());
    return kExitUsage;
  }
  session_options.transport = *std::move(transport);
  const std::string warning = session_options.transport->WarningFor(flags.coordinator);
  if (!warning.empty()) logger.Warning(warning);
  CurrentSession session;
  std::atomic<bool> stop = false;
  TrainOptions options;
  options.threads = *threads;
  options.stop = &stop;
  options.on_trained = [&](const TrainReport& trained) {
    if (flags.report.empty()) return;
    // Written again at the end; if that fails too, it is told then.
    (void)WriteReport(flags.report, SuccessJson(*spec, *rank, trained));
  };
  SignalWatch watch(
      [&](int signal) {
        if (flags.supervised && spec->checkpoint.enabled()) {
          logger.Info("stopped by signal ", signal, "; the job waits for this rank's next process");
          std::_Exit(kExitBySignal + signal);
        }
        logger.Info("stopping: signal ", signal);
        stop = true;
        session.Abandon("stopped by a signal");
      },
      kStopGrace);
  const absl::StatusOr<TrainReport> report =
      Train(*spec, std::move(session_options), *rank, &session, options, logger);
  return Conclude(*spec, *rank, flags, report, watch.received(), logger);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::KeepFreedMemory();
  sluice::BlockStopSignals();
  sluice::Flags flags;
  CLI::App app(sluice::kDescription, "sluice-worker");
  sluice::AddFlags(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : sluice::kExitUsage;
  }
  return sluice::Run(flags);
}
