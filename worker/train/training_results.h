// TrainingResults: what a run shows of itself while it trains and when it is done.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/log.h"
#include "job/job_spec.h"
#include "worker/core/session.h"
#include "worker/train/evaluation.h"
#include "worker/train/step_times.h"
#include "worker/train/train.h"
#include "worker/train/training_state.h"

namespace sluice {

// A step as results see it.
struct FinishedStep {
  uint64_t step = 0;
  uint64_t samples = 0;          // Of this rank.
  std::optional<double> loss{};  // None: this rank was out of data.
};

// Used from the thread that trains; `options`, `session` and `logger` outlive it.
class TrainingResults {
 public:
  TrainingResults(const TrainOptions* options, Session* session, const Logger* logger)
      : options_(*options), session_(*session), logger_(*logger) {}

  // Before Start, in a run that goes on from a checkpoint; and what goes into one.
  void Restore(const TrainingCursor& cursor);
  void AddTo(TrainingCursor* cursor) const;

  // Of `total_steps` the first of this run comes next.
  void Start(absl::Time now, uint64_t total_steps);
  // A pass over the data begins; not for one that goes on.
  void BeginEpoch() { epoch_loss_ = LossMean{}; }
  void EndEpoch(uint64_t epochs_finished) { epoch_ = epochs_finished; }
  // Each step is counted once it is applied, so that a checkpoint of it has it, and ended when all
  // is done that belongs to it; then it may be reported and logged.
  void CountStep(const FinishedStep& step);
  void EndStep(absl::Duration took, absl::Time now);
  void AddEvaluation(uint64_t epoch, const Evaluation& evaluation);
  // The last step is done.
  void Stop(absl::Time now);
  // Reports for the last time. Counts of parameters and skipped steps and the hash are not this
  // object's to know.
  TrainReport Finish(absl::Time now);

 private:
  // A mean of losses, added up as they come.
  struct LossMean {
    double sum = 0;
    uint64_t count = 0;

    void Add(double loss) {
      sum += loss;
      ++count;
    }
    double value() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
  };

  void Report(absl::Time now);

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
  LossMean epoch_loss_;
  LossMean report_loss_;  // Since the last report.
  StepTimes step_times_;
  absl::Time started_;
  absl::Time last_report_;
  absl::Time last_log_;
  absl::Duration wall_;
  TrafficCounters traffic_at_start_;
  std::optional<Evaluation> evaluation_;
};

}  // namespace sluice
