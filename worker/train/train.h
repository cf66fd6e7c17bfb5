// SPDX-License-Identifier: Apache-2.0
// RunTraining: one worker's part of a job, from data and model to trained parameters. Does not
// include LibTorch headers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "worker/core/job_client.h"
#include "worker/train/best_test.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::worker {

// Data that a rank reads once for any number of runs.
struct TrainingData;
absl::StatusOr<std::shared_ptr<const TrainingData>> LoadTrainingData(const job::JobSpec& spec,
                                                                     uint32_t rank);

struct TrainReport;

struct TrainOptions {
  std::shared_ptr<const TrainingData> data;  // If null, the run loads it.
  // Number of threads inside LibTorch's operations; results depend on it. 0 selects one thread if
  // the job has several workers, because they may share a machine, otherwise LibTorch's default.
  int threads = 0;
  // When it becomes true, the run ends after the current step with CANCELLED. Abandon the job
  // to interrupt Wait as well.
  const std::atomic<bool>* stop = nullptr;
  // Called on the training thread after the first step, about once a second, and after the last
  // step.
  std::function<void(const Progress&)> on_progress;
  // Called on the training thread when only leaving the job remains. The report is valid if the job
  // finishes, even if this process fails afterwards.
  std::function<void(const TrainReport&)> on_trained;
};

struct TrainReport {
  // Steps since the start of the job. The fields below also count from there, unless they say
  // otherwise.
  uint64_t steps = 0;
  uint64_t rounds = 0;  // Exchanges: equal to steps, but fewer with local steps.
  // Steps in which this rank skipped a bundle because a gradient was not finite.
  uint64_t skipped = 0;
  uint64_t parameters = 0;  // Number of trained elements.
  // From this run's first step to the end of its last, including evaluations between them.
  double wall_seconds = 0;
  // In jobs whose workers do not wait for each other: StepResult::staleness, averaged over the
  // exchanges of this run.
  std::optional<double> staleness;
  double train_loss = 0;  // This rank's mean over its part of the last epoch.
  // 0 to 1, after the last step; only on the rank that tests, if the job has test data.
  std::optional<double> test_accuracy;
  std::optional<double> test_loss;
  // Test of best.pt; only on the rank that tests, if the job also has an `output`.
  std::optional<BestTest> best;
  std::string parameters_sha256;  // Hexadecimal.
  double step_ms_p50 = 0;
  double step_ms_p95 = 0;
  double samples_per_second = 0;  // Rate of this rank in this run.
  TrafficCounters traffic;
};

// Runs `spec` as `rank`: loads data, builds the model, joins, trains, evaluates, saves the
// parameters and leaves. Rank 0, or with elastic membership the lowest rank that took part in the
// last step, tests the model at each epoch's end and after the last step. If the job has an
// `output`, that rank writes best.pt at each best test, and parameters.pt and
// parameters.safetensors at the end; rank 0 writes scalars during the run. When the job wants a
// checkpoint, the run saves its state, and rank 0 adds parameters.pt. If the join asks for it, the
// run restores a checkpoint and continues from there. On a failure after the join, the run abandons
// the job with the reason, unless the failure is a rollback (IsRollback): then another run with a
// new client continues. Equal inputs and threads give equal parameters, bit for bit, with or
// without restarts from checkpoints.
absl::StatusOr<TrainReport> RunTraining(const job::JobSpec& spec, uint32_t rank, JobClient* client,
                                        const TrainOptions& options, const Logger& logger);

}  // namespace sluice::worker
