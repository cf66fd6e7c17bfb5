#include "worker/train/training_results.h"

#include "absl/strings/str_format.h"

namespace sluice {
namespace {

constexpr absl::Duration kReportEvery = absl::Seconds(1);
constexpr absl::Duration kLogEvery = absl::Seconds(10);

TrafficCounters Sum(const TrafficCounters& a, const TrafficCounters& b) {
  return {.bytes_up = a.bytes_up + b.bytes_up,
          .bytes_down = a.bytes_down + b.bytes_down,
          .steps = a.steps + b.steps,
          .encode_seconds = a.encode_seconds + b.encode_seconds,
          .decode_seconds = a.decode_seconds + b.decode_seconds,
          .exposed_seconds = a.exposed_seconds + b.exposed_seconds};
}

}  // namespace

void TrainingResults::Restore(const TrainingCursor& cursor) {
  step_ = cursor.step;
  first_step_ = cursor.step + 1;
  epoch_ = cursor.epoch;
  samples_ = samples_at_start_ = samples_at_report_ = cursor.samples;
  last_loss_ = cursor.last_loss;
  epoch_loss_ = {.sum = cursor.epoch_loss_sum, .count = cursor.epoch_loss_count};
  evaluation_ = cursor.evaluation;
  traffic_at_start_ = cursor.traffic;
}

void TrainingResults::AddTo(TrainingCursor* cursor) const {
  cursor->samples = samples_;
  cursor->last_loss = last_loss_;
  cursor->epoch_loss_sum = epoch_loss_.sum;
  cursor->epoch_loss_count = epoch_loss_.count;
  cursor->evaluation = evaluation_;
  cursor->traffic = Sum(traffic_at_start_, session_.traffic());
}

void TrainingResults::Start(absl::Time now, uint64_t total_steps) {
  total_steps_ = total_steps;
  started_ = last_report_ = last_log_ = now;
}

void TrainingResults::CountStep(const FinishedStep& step) {
  step_ = step.step;
  samples_ += step.samples;
  if (step.loss.has_value()) {
    last_loss_ = *step.loss;
    epoch_loss_.Add(last_loss_);
    report_loss_.Add(last_loss_);
  }
}

void TrainingResults::EndStep(absl::Duration took, absl::Time now) {
  step_times_.Add(took);
  if (step_ == first_step_ || now - last_report_ >= kReportEvery) Report(now);
}

void TrainingResults::AddEvaluation(uint64_t epoch, const Evaluation& evaluation) {
  evaluation_ = evaluation;
  logger_.Info(absl::StrFormat("epoch %d, step %d of %d: test accuracy %.2f %%, test loss %.4f",
                               epoch, step_, total_steps_, evaluation.accuracy * 100,
                               evaluation.loss));
}

void TrainingResults::Report(absl::Time now) {
  const absl::Duration since = now - last_report_;
  Progress progress;
  progress.step = step_;
  progress.total_steps = total_steps_;
  progress.epoch = static_cast<uint32_t>(epoch_);
  progress.loss = report_loss_.count > 0 ? report_loss_.value() : last_loss_;
  if (since > absl::ZeroDuration()) {
    progress.samples_per_second =
        static_cast<double>(samples_ - samples_at_report_) / absl::ToDoubleSeconds(since);
  }
  progress.step_ms_p50 = step_times_.PercentileMs(50);
  if (evaluation_.has_value()) progress.validation_metric = evaluation_->accuracy;
  session_.Report(progress);
  if (options_.on_progress) options_.on_progress(progress);
  if (now - last_log_ >= kLogEvery) {
    last_log_ = now;
    logger_.Info(absl::StrFormat("step %d of %d: loss %.4f, %.0f samples/s, %.1f ms a step", step_,
                                 total_steps_, progress.loss, progress.samples_per_second,
                                 progress.step_ms_p50));
  }
  report_loss_ = LossMean{};
  samples_at_report_ = samples_;
  last_report_ = now;
}

void TrainingResults::Stop(absl::Time now) { wall_ = now - started_; }

TrainReport TrainingResults::Finish(absl::Time now) {
  Report(now);
  TrainReport report;
  report.steps = step_;
  report.wall_seconds = absl::ToDoubleSeconds(wall_);
  report.train_loss = epoch_loss_.value();
  if (evaluation_.has_value()) {
    report.test_accuracy = evaluation_->accuracy;
    report.test_loss = evaluation_->loss;
  }
  report.step_ms_p50 = step_times_.PercentileMs(50);
  report.step_ms_p95 = step_times_.PercentileMs(95);
  if (report.wall_seconds > 0) {
    report.samples_per_second =
        static_cast<double>(samples_ - samples_at_start_) / report.wall_seconds;
  }
  report.traffic = Sum(traffic_at_start_, session_.traffic());
  return report;
}

}  // namespace sluice
