// SPDX-License-Identifier: Apache-2.0
// TrainingResults: the progress and results that a run reports during and after training.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "base/log.h"
#include "job/job_spec.h"
#include "worker/core/session.h"
#include "worker/scalars/scalar_log.h"
#include "worker/train/best_test.h"
#include "worker/train/evaluation.h"
#include "worker/train/step_times.h"
#include "worker/train/time_left.h"
#include "worker/train/train.h"
#include "worker/train/training_state.h"

namespace sluice::worker {

// A finished step.
struct FinishedStep {
  uint64_t step = 0;
  uint64_t samples = 0;                 // Samples of this rank.
  std::optional<double> loss{};         // Absent if this rank was out of data.
  std::optional<uint64_t> staleness{};  // Absent without an exchange.
  double learning_rate = 0;
  bool begins_epoch = false;
  uint64_t breaks_left = 0;  // Epoch ends that are still to come, including the last.
};

// Used from the training thread; `spec`, `options`, `logger` and the session must outlive it.
class TrainingResults {
 public:
  TrainingResults(const job::JobSpec* spec, uint32_t rank, const TrainOptions* options,
                  const Logger* logger)
      : spec_(*spec),
        writes_scalars_(rank == 0 && !spec->output.empty() && spec->log_interval > 0),
        options_(*options),
        logger_(*logger) {}

  // In a run that continues from a checkpoint, call Restore before Start. AddTo adds this object's
  // part to a checkpoint.
  void Restore(const TrainingCursor& cursor);
  void AddTo(TrainingCursor* cursor, absl::Time now) const;

  // Call before this run's first step. The job has `total_steps` steps, and the model has
  // `parameters` parameters.
  void Start(absl::Time now, Session* session, uint64_t total_steps, uint64_t parameters);
  // Call when the number of steps changes, because workers have joined or left.
  void SetTotalSteps(uint64_t total_steps) { total_steps_ = total_steps; }
  // Call at the beginning of a pass over the data, but not if the run continues a pass.
  void BeginEpoch() { epoch_loss_ = Mean{}; }
  void EndEpoch(uint64_t epochs_finished) { epoch_ = epochs_finished; }
  // Call CountStep when a step is applied, so that the step's checkpoint includes it. Call EndStep
  // when all work of the step is done; it may report and log the step.
  void CountStep(const FinishedStep& step);
  void EndStep(absl::Duration took, absl::Time now);
  void AddEvaluation(uint64_t epoch, const Evaluation& evaluation, absl::Time now);
  // IsBest returns true if the test is better than all others so far. Call SetBest when best.pt
  // contains its parameters.
  bool IsBest(const BestTest& test) const;
  void SetBest(const BestTest& test) { best_ = test; }
  const std::optional<BestTest>& best() const { return best_; }
  // Call after the last step.
  void Stop(absl::Time now);
  // Reports for the last time. The caller fills in the number of parameters, the skipped steps and
  // the hash.
  TrainReport Finish(absl::Time now);

 private:
  // An incremental mean.
  struct Mean {
    double sum = 0;
    uint64_t count = 0;

    void Add(double value) {
      sum += value;
      ++count;
    }
    double value() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
  };

  // Sums over the steps since the last row of scalars.
  struct RowSums {
    Mean loss;
    uint64_t steps = 0;
    uint64_t samples = 0;
    double seconds = 0;
  };

  void Report(absl::Time now, std::optional<absl::Duration> time_left);
  double WallSeconds(absl::Time now) const;
  ScalarRow MakeRow(absl::Time now);
  void AddTraffic(ScalarRow* row);

  const job::JobSpec& spec_;
  const bool writes_scalars_;
  const TrainOptions& options_;
  Session* session_ = nullptr;  // Null before Start.
  const Logger& logger_;

  uint64_t total_steps_ = 0;
  uint64_t first_step_ = 1;  // First step of this run.
  uint64_t step_ = 0;
  uint64_t epoch_ = 0;
  uint64_t samples_ = 0;
  uint64_t samples_at_start_ = 0;
  uint64_t samples_at_report_ = 0;
  double last_loss_ = 0;
  double last_learning_rate_ = 0;
  bool begins_epoch_ = false;  // True if the last step began an epoch.
  uint64_t breaks_left_ = 0;
  Mean epoch_loss_;
  Mean report_loss_;  // Since the last report.
  Mean staleness_;
  StepTimes step_times_;
  TimeLeft time_left_;
  double wall_seconds_before_ = 0;  // Time before this run.
  absl::Time started_;
  absl::Time last_report_;
  absl::Time last_log_;
  absl::Duration wall_;
  TrafficCounters traffic_at_start_;
  std::optional<Evaluation> evaluation_;
  std::optional<BestTest> best_;

  uint64_t parameters_ = 0;
  std::unique_ptr<ScalarLog> scalars_;  // Null without rows.
  RowSums row_;
  // Traffic after the last row with an exchange, and the step of that row.
  TrafficCounters row_traffic_;
  uint64_t row_traffic_step_ = 0;
};

}  // namespace sluice::worker
