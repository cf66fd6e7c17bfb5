// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training_results.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "job/support.h"

namespace sluice::worker {
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

std::string InWords(std::optional<absl::Duration> time_left) {
  if (!time_left.has_value()) return "";
  return absl::StrCat(", ", absl::FormatDuration(absl::Ceil(*time_left, absl::Seconds(1))),
                      " left");
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
  best_ = cursor.best;
  wall_seconds_before_ = cursor.wall_seconds;
  traffic_at_start_ = cursor.traffic;
}

void TrainingResults::AddTo(TrainingCursor* cursor, absl::Time now) const {
  cursor->samples = samples_;
  cursor->last_loss = last_loss_;
  cursor->epoch_loss_sum = epoch_loss_.sum;
  cursor->epoch_loss_count = epoch_loss_.count;
  cursor->evaluation = evaluation_;
  cursor->traffic = Sum(traffic_at_start_, session_->traffic());
  cursor->best = best_;
  cursor->wall_seconds = WallSeconds(now);
}

void TrainingResults::Start(absl::Time now, Session* session, uint64_t total_steps,
                            uint64_t parameters) {
  session_ = session;
  total_steps_ = total_steps;
  parameters_ = parameters;
  started_ = last_report_ = last_log_ = now;
  time_left_.Start(now);
  if (!writes_scalars_) return;
  scalars_ = std::make_unique<ScalarLog>(spec_.output, step_, absl::Now(), &logger_);
  row_traffic_ = session_->traffic();
  row_traffic_step_ = step_;
}

double TrainingResults::WallSeconds(absl::Time now) const {
  return wall_seconds_before_ + absl::ToDoubleSeconds(now - started_);
}

void TrainingResults::CountStep(const FinishedStep& step) {
  step_ = step.step;
  samples_ += step.samples;
  row_.samples += step.samples;
  last_learning_rate_ = step.learning_rate;
  begins_epoch_ = step.begins_epoch;
  breaks_left_ = step.breaks_left;
  if (step.staleness.has_value()) staleness_.Add(static_cast<double>(*step.staleness));
  if (step.loss.has_value()) {
    last_loss_ = *step.loss;
    epoch_loss_.Add(last_loss_);
    report_loss_.Add(last_loss_);
    row_.loss.Add(last_loss_);
  }
}

void TrainingResults::EndStep(absl::Duration took, absl::Time now) {
  step_times_.Add(took);
  time_left_.EndStep(now, begins_epoch_);
  ++row_.steps;
  row_.seconds += absl::ToDoubleSeconds(took);
  if (scalars_ != nullptr && step_ % spec_.log_interval == 0) {
    scalars_->Append(MakeRow(now), absl::Now());
  }
  if (step_ == first_step_ || now - last_report_ >= kReportEvery) {
    Report(now, time_left_.For(total_steps_ - step_, breaks_left_));
  }
}

ScalarRow TrainingResults::MakeRow(absl::Time now) {
  ScalarRow row{.step = step_, .epoch = epoch_, .wall_seconds = WallSeconds(now)};
  if (row_.steps > 0) {
    if (row_.loss.count > 0) row.loss = row_.loss.value();
    row.learning_rate = last_learning_rate_;
    row.step_ms = row_.seconds * 1000 / static_cast<double>(row_.steps);
    if (row_.seconds > 0) {
      row.samples_per_second = static_cast<double>(row_.samples) / row_.seconds;
    }
    AddTraffic(&row);
  }
  row_ = RowSums();
  return row;
}

void TrainingResults::AddTraffic(ScalarRow* row) {
  const TrafficCounters traffic = session_->traffic();
  const TrafficCounters before = row_traffic_;
  if (traffic.steps == before.steps) return;
  const auto steps = static_cast<double>(step_ - row_traffic_step_);
  const double dense = static_cast<double>(parameters_) * sizeof(float);
  row->bytes_up = static_cast<double>(traffic.bytes_up - before.bytes_up) / steps;
  row->bytes_down = static_cast<double>(traffic.bytes_down - before.bytes_down) / steps;
  if (*row->bytes_up > 0) row->ratio_up = dense / *row->bytes_up;
  if (*row->bytes_down > 0) row->ratio_down = dense / *row->bytes_down;
  row->exposed_seconds = (traffic.exposed_seconds - before.exposed_seconds) / steps;
  row_traffic_ = traffic;
  row_traffic_step_ = step_;
}

bool TrainingResults::IsBest(const BestTest& test) const {
  return !best_.has_value() || test == *best_ || IsBetter(test, *best_, MeasureOf(spec_.data));
}

void TrainingResults::AddEvaluation(uint64_t epoch, const Evaluation& evaluation, absl::Time now) {
  evaluation_ = evaluation;
  logger_.Info(
      absl::StrFormat("epoch %d, step %d of %d: %s", epoch, step_, total_steps_,
                      DescribeTest(evaluation.accuracy, evaluation.loss, MeasureOf(spec_.data))));
  if (scalars_ == nullptr) return;
  ScalarRow row = MakeRow(now);
  row.test_accuracy = evaluation.accuracy;
  row.test_loss = evaluation.loss;
  scalars_->Append(row, absl::Now());
}

void TrainingResults::Report(absl::Time now, std::optional<absl::Duration> time_left) {
  const absl::Duration since = now - last_report_;
  Progress progress;
  progress.step = step_;
  progress.total_steps = total_steps_;
  progress.epoch = static_cast<uint32_t>(epoch_);
  progress.samples = samples_;
  progress.loss = report_loss_.count > 0 ? report_loss_.value() : last_loss_;
  if (since > absl::ZeroDuration()) {
    progress.samples_per_second =
        static_cast<double>(samples_ - samples_at_report_) / absl::ToDoubleSeconds(since);
  }
  progress.step_ms_p50 = step_times_.PercentileMs(50);
  if (evaluation_.has_value()) progress.validation_metric = evaluation_->accuracy;
  if (time_left.has_value()) progress.seconds_left = absl::ToDoubleSeconds(*time_left);
  session_->Report(progress);
  if (options_.on_progress) options_.on_progress(progress);
  if (now - last_log_ >= kLogEvery) {
    last_log_ = now;
    logger_.Info(absl::StrFormat("step %d of %d: loss %.4f, %.0f samples/s, %.1f ms per step%s",
                                 step_, total_steps_, progress.loss, progress.samples_per_second,
                                 progress.step_ms_p50, InWords(time_left)));
  }
  report_loss_ = Mean{};
  samples_at_report_ = samples_;
  last_report_ = now;
}

void TrainingResults::Stop(absl::Time now) { wall_ = now - started_; }

TrainReport TrainingResults::Finish(absl::Time now) {
  Report(now, absl::ZeroDuration());
  TrainReport report;
  report.steps = step_;
  report.wall_seconds = absl::ToDoubleSeconds(wall_);
  report.train_loss = epoch_loss_.value();
  if (evaluation_.has_value()) {
    report.test_accuracy = evaluation_->accuracy;
    report.test_loss = evaluation_->loss;
  }
  report.best = best_;
  if (!spec_.exchange.in_lockstep() && staleness_.count > 0) report.staleness = staleness_.value();
  report.step_ms_p50 = step_times_.PercentileMs(50);
  report.step_ms_p95 = step_times_.PercentileMs(95);
  if (report.wall_seconds > 0) {
    report.samples_per_second =
        static_cast<double>(samples_ - samples_at_start_) / report.wall_seconds;
  }
  report.traffic = Sum(traffic_at_start_, session_->traffic());
  return report;
}

}  // namespace sluice::worker
