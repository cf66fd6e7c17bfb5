// TrainingResults: what a run shows of itself while it trains and when it is done.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "base/log.h"
#include "worker/core/session.h"
#include "worker/scalars/scalar_log.h"
#include "worker/train/best_test.h"
#include "worker/train/evaluation.h"
#include "worker/train/step_times.h"
#include "worker/train/time_left.h"
#include "worker/train/train.h"
#include "worker/train/training_state.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::worker {

// A step as results see it.
struct FinishedStep {
  uint64_t step = 0;
  uint64_t samples = 0;                 // Of this rank.
  std::optional<double> loss{};         // None: this rank was out of data.
  std::optional<uint64_t> staleness{};  // None: no exchange.
  double learning_rate = 0;
  bool begins_epoch = false;
  uint64_t breaks_left = 0;  // Ends of epochs that are to come, the last one's included.
};

// Used from the thread that trains; `spec`, `options`, `session` and `logger` outlive it.
class TrainingResults {
 public:
  TrainingResults(const job::JobSpec* spec, uint32_t rank, const TrainOptions* options,
                  Session* session, const Logger* logger)
      : spec_(*spec),
        writes_scalars_(rank == 0 && !spec->output.empty() && spec->scalars_every > 0),
        options_(*options),
        session_(*session),
        logger_(*logger) {}

  // Before Start, in a run that goes on from a checkpoint; and what goes into one.
  void Restore(const TrainingCursor& cursor);
  void AddTo(TrainingCursor* cursor, absl::Time now) const;

  // Of `total_steps` the first of this run comes next. The model has so many `parameters`.
  void Start(absl::Time now, uint64_t total_steps, uint64_t parameters);
  // A pass over the data begins; not for one that goes on.
  void BeginEpoch() { epoch_loss_ = Mean{}; }
  void EndEpoch(uint64_t epochs_finished) { epoch_ = epochs_finished; }
  // Each step is counted once it is applied, so that a checkpoint of it has it, and ended when all
  // is done that belongs to it; then it may be reported and logged.
  void CountStep(const FinishedStep& step);
  void EndStep(absl::Duration took, absl::Time now);
  void AddEvaluation(uint64_t epoch, const Evaluation& evaluation, absl::Time now);
  // Whether such a test is (or was found to be) the best of all; and that best.pt is of it now.
  bool IsBest(const BestTest& test) const;
  void SetBest(const BestTest& test) { best_ = test; }
  const std::optional<BestTest>& best() const { return best_; }
  // The last step is done.
  void Stop(absl::Time now);
  // Reports for the last time. Counts of parameters and skipped steps and the hash are not this
  // object's to know.
  TrainReport Finish(absl::Time now);

 private:
  // A mean, added up as values come.
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
  ScalarRow TakeRow(absl::Time now);
  void AddTraffic(ScalarRow* row);

  const job::JobSpec& spec_;
  const bool writes_scalars_;
  const TrainOptions& options_;
  Session& session_;
  const Logger& logger_;

  uint64_t total_steps_ = 0;
  uint64_t first_step_ = 1;  // Of this run.
  uint64_t step_ = 0;
  uint64_t epoch_ = 0;
  uint64_t samples_ = 0;
  uint64_t samples_at_start_ = 0;
  uint64_t samples_at_report_ = 0;
  double last_loss_ = 0;
  double last_learning_rate_ = 0;
  bool begins_epoch_ = false;  // Of the last step.
  uint64_t breaks_left_ = 0;
  Mean epoch_loss_;
  Mean report_loss_;  // Since the last report.
  Mean staleness_;
  StepTimes step_times_;
  TimeLeft time_left_;
  double wall_seconds_before_ = 0;  // This run.
  absl::Time started_;
  absl::Time last_report_;
  absl::Time last_log_;
  absl::Duration wall_;
  TrafficCounters traffic_at_start_;
  std::optional<Evaluation> evaluation_;
  std::optional<BestTest> best_;

  uint64_t parameters_ = 0;
  std::unique_ptr<ScalarLog> scalars_;  // None: no rows.
  RowSums row_;
  // After the last row that had an exchange, and which step's that was.
  TrafficCounters row_traffic_;
  uint64_t row_traffic_step_ = 0;
};

}  // namespace sluice::worker
