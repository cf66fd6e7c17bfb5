// RunTraining: one worker's part of a job, from data and model to trained parameters. Shows nothing
// of LibTorch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "worker/core/session.h"
#include "worker/train/best_test.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::worker {

// What a rank reads once, for as many runs as it takes.
struct TrainingData;
absl::StatusOr<std::shared_ptr<const TrainingData>> LoadTrainingData(const job::JobSpec& spec,
                                                                     uint32_t rank);

struct TrainReport;

struct TrainOptions {
  std::shared_ptr<const TrainingData> data;  // None: the run loads it.
  // Threads inside LibTorch's operations. Results depend on it. 0: one if the job has several
  // workers, which may share a machine; else LibTorch's choice.
  int threads = 0;
  // Becomes true: the run ends after the current step with CANCELLED. To be told during Wait too,
  // abandon the session.
  const std::atomic<bool>* stop = nullptr;
  // After the first step, about once a second, and after the last step, on the training thread.
  std::function<void(const Progress&)> on_progress;
  // All is done but leaving the job, on the training thread: whatever becomes of this process, the
  // report stands if the job finishes.
  std::function<void(const TrainReport&)> on_trained;
};

struct TrainReport {
  uint64_t steps = 0;    // Since the job's start, as are those below that say nothing else.
  uint64_t rounds = 0;   // Exchanges: as many as steps, but fewer in local_sgd.
  uint64_t skipped = 0;  // Steps of which this rank held a bundle back: a gradient was not finite.
  uint64_t parameters = 0;  // Elements that were trained.
  double wall_seconds =
      0;  // From this run's first step to the end of its last; evaluations between them included.
  // Mean over this run's exchanges of the most updates by others that one of this rank's missed; of
  // jobs whose workers do not wait for each other.
  std::optional<double> staleness;
  double train_loss = 0;  // This rank's mean over the last epoch, or what it saw of it.
  std::optional<double>
      test_accuracy;  // 0 to 1, after the last step; of rank 0, if the job has test data.
  std::optional<double> test_loss;
  std::optional<BestTest> best;   // Which best.pt is of; of rank 0, if the job has an `output` too.
  std::string parameters_sha256;  // Hexadecimal.
  double step_ms_p50 = 0;
  double step_ms_p95 = 0;
  double samples_per_second = 0;  // Of this rank in this run.
  TrafficCounters traffic;
};

// Runs `spec` as `rank`. Loads data, builds the model, joins, trains, evaluates (rank 0: at each
// epoch's end and after the last step), saves the parameters if the job has an `output` (rank 0; at
// each best test as best.pt, at the end as parameters.pt, and on the way its scalars), and leaves.
// Where the job wants a checkpoint it saves what it needs to go on, and rank 0 adds parameters.pt;
// told at the join to restore one, it goes on from there. A failure after the join is told to the
// session with Abandon, unless it is a rollback (IsRollback): then another run with a new session
// goes on. Same inputs and threads, same parameters, bit for bit, whether or not it went on from
// checkpoints.
absl::StatusOr<TrainReport> RunTraining(const job::JobSpec& spec, uint32_t rank, Session* session,
                                        const TrainOptions& options, const Logger& logger);

}  // namespace sluice::worker
