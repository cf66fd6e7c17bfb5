#include "worker/train/train.h"

#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random.h"
#include "worker/data/batch_stream.h"
#include "worker/data/dataset.h"
#include "worker/data/source/shard_sampler.h"
#include "worker/models/make_model.h"
#include "worker/torch/data_parallel.h"
#include "worker/torch/torch_status.h"
#include "worker/train/evaluation.h"
#include "worker/train/learning_rate.h"
#include "worker/train/optimizers.h"
#include "worker/train/parameters_file.h"
#include "worker/train/step_times.h"
#include "worker/train/training_state.h"

namespace sluice {

struct TrainingData {
  Datasets sets;  // No test data on ranks that do not evaluate.
};

namespace {

constexpr absl::Duration kReportEvery = absl::Seconds(1);
constexpr absl::Duration kLogEvery = absl::Seconds(10);
constexpr uint64_t kCompareParametersEvery = 500;  // Steps.
constexpr uint32_t kMaxSkippedInARow = 20;
constexpr uint64_t kTrainingStream = 0x5452;  // Keeps this use of the seed apart from others.

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

TrafficCounters Sum(const TrafficCounters& a, const TrafficCounters& b) {
  return {.bytes_up = a.bytes_up + b.bytes_up,
          .bytes_down = a.bytes_down + b.bytes_down,
          .steps = a.steps + b.steps,
          .encode_seconds = a.encode_seconds + b.encode_seconds,
          .decode_seconds = a.decode_seconds + b.decode_seconds,
          .exposed_seconds = a.exposed_seconds + b.exposed_seconds};
}

// Everything that a run holds between its steps.
class TrainingRun {
 public:
  TrainingRun(const JobSpec& spec, uint32_t rank, Session* session, const TrainOptions& options,
              const Logger& logger)
      : spec_(spec), rank_(rank), session_(session), options_(options), logger_(logger) {}

  absl::Status Prepare();
  absl::Status Join();
  // From what the join said.
  absl::Status Restore();
  absl::Status Train();
  absl::StatusOr<TrainReport> Finish();

 private:
  ShardSamplerOptions SamplerOptions() const;
  BatchStreamOptions StreamOptions(uint64_t steps) const;
  uint64_t TotalSteps() const;
  void RestoreDeal(const TrainingCursor& cursor);
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }
  absl::Status TrainStep(BatchStream* batches, uint64_t step_of_epoch);
  absl::StatusOr<StepResult> RunPasses(BatchStream* batches, uint64_t step_of_epoch);
  absl::Status SaveCheckpoint();
  absl::Status WatchForNonFinite(const StepResult& result);
  absl::Status EvaluateNow();
  void Report(absl::Time now, bool always);

  const JobSpec& spec_;
  const uint32_t rank_;
  Session* const session_;
  const TrainOptions& options_;
  const Logger& logger_;
  const SteadyClock clock_;

  std::shared_ptr<const TrainingData> data_;
  JoinInfo joined_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<ShardSampler> sampler_;
  uint64_t total_steps_ = 0;

  uint64_t step_ = 0;  // Finished ones.
  uint64_t epoch_ = 0;
  // Where the deal of this epoch began: finished steps, and cards of the deck.
  uint64_t deal_step_ = 0;
  uint64_t deal_offset_ = 0;
  uint64_t samples_ = 0;
  uint32_t skipped_in_a_row_ = 0;
  double last_loss_ = 0;
  LossMean epoch_loss_;
  LossMean report_loss_;  // Since the last report.
  StepTimes step_times_;
  absl::Time started_;
  absl::Time last_report_;
  absl::Time last_log_;
  TrafficCounters traffic_at_start_;
  uint64_t samples_at_start_ = 0;
  uint64_t samples_at_report_ = 0;
  std::optional<Evaluation> evaluation_;
  TrainReport report_;
};

absl::Status TrainingRun::Prepare() {
  if (options_.threads > 0) {
    at::set_num_threads(options_.threads);
  } else if (spec_.workers > 1) {
    at::set_num_threads(1);
  }
  data_ = options_.data;
  if (data_ == nullptr) {
    absl::StatusOr<std::shared_ptr<const TrainingData>> data = LoadTrainingData(spec_, rank_);
    if (!data.ok()) return data.status();
    data_ = *std::move(data);
  }
  torch::manual_seed(spec_.seed);
  absl::StatusOr<std::shared_ptr<Model>> model =
      MakeModel(spec_.model, data_->sets.training->shape());
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  // Ranks have equal parameters, but what a model draws while it trains (dropout) is each rank's
  // own.
  torch::manual_seed(CounterRandom(spec_.seed, kTrainingStream, rank_).Next());
  absl::StatusOr<std::unique_ptr<DataParallel>> parallel = DataParallel::Create(
      *model_, session_, {.accumulation_steps = spec_.gradient_accumulation_steps});
  if (!parallel.ok()) return parallel.status();
  parallel_ = *std::move(parallel);
  absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> optimizer =
      MakeOptimizer(spec_.optimizer, parallel_->parameters());
  if (!optimizer.ok()) return optimizer.status();
  optimizer_ = *std::move(optimizer);
  sampler_ = std::make_unique<ShardSampler>(SamplerOptions());
  total_steps_ = TotalSteps();
  report_.parameters = TrainedElements(parallel_->table());
  logger_.Info("model ", spec_.model.name, " with ", report_.parameters, " parameters; ",
               data_->sets.training->size(), " training samples, ", sampler_->steps_per_epoch(),
               " steps an epoch, ", total_steps_, " in all; LibTorch uses ", at::get_num_threads(),
               at::get_num_threads() == 1 ? " thread" : " threads");
  return absl::OkStatus();
}

ShardSamplerOptions TrainingRun::SamplerOptions() const {
  return {.samples = data_->sets.training->size(),
          .ranks = spec_.workers,
          .rank = rank_,
          .batch_size = spec_.batch_size_per_worker,
          .passes_per_step = spec_.gradient_accumulation_steps,
          .seed = spec_.seed};
}

// Of the deal that has `steps` steps, what this run has to do.
BatchStreamOptions TrainingRun::StreamOptions(uint64_t steps) const {
  return {.epoch = {.seed = spec_.seed, .epoch = epoch_},
          .offset = deal_offset_,
          .first_step = step_ - deal_step_,
          .end_step = std::min(steps, total_steps_ - deal_step_),
          .passes_per_step = spec_.gradient_accumulation_steps,
          .prefetch = spec_.data.prefetch};
}

uint64_t TrainingRun::TotalSteps() const {
  if (spec_.steps > 0) return spec_.steps;
  if (epoch_ >= spec_.epochs) return 0;
  return deal_step_ + sampler_->StepsAfter(deal_offset_) +
         (spec_.epochs - epoch_ - 1) * sampler_->steps_per_epoch();
}

// What other ranks have left of the epoch's deck is dealt to those that are here now.
void TrainingRun::RestoreDeal(const TrainingCursor& cursor) {
  deal_step_ = cursor.deal_step;
  deal_offset_ = cursor.deal_offset;
  if (cursor.ranks == spec_.workers || cursor.ranks == 0) return;
  ShardSamplerOptions before = SamplerOptions();
  before.ranks = cursor.ranks;
  before.rank = 0;
  deal_offset_ = ShardSampler(before).OffsetAfter(deal_offset_, step_ - deal_step_);
  deal_step_ = step_;
  logger_.Info("the checkpoint is of ", cursor.ranks, " workers; ",
               data_->sets.training->size() - deal_offset_, " of ", data_->sets.training->size(),
               " samples of this pass over the data are left for the ", spec_.workers,
               " that are here now");
}

absl::Status TrainingRun::Join() {
  const absl::StatusOr<JoinInfo> info = parallel_->Join();
  if (!info.ok()) return info.status();
  if (!info->parameters_agree) {
    logger_.Info("initial parameters differed between ranks: all start from those of rank 0");
  }
  joined_ = *info;
  return absl::OkStatus();
}

absl::Status TrainingRun::Restore() {
  if (joined_.restored_step == 0) return absl::OkStatus();
  TrainingCursor cursor;
  const absl::Status status =
      RestoreTrainingState(joined_.restored, model_.get(), optimizer_.get(), &cursor);
  if (!status.ok()) return status;
  joined_.restored = std::string();
  step_ = cursor.step;
  epoch_ = cursor.epoch;
  RestoreDeal(cursor);
  total_steps_ = TotalSteps();
  if (cursor.step != joined_.restored_step || cursor.step > total_steps_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint after step ", joined_.restored_step,
                     " holds training as it was after step ", cursor.step, " of ", total_steps_,
                     " in all: was the job made shorter since?"));
  }
  samples_ = samples_at_start_ = samples_at_report_ = cursor.samples;
  report_.skipped = cursor.skipped;
  skipped_in_a_row_ = cursor.skipped_in_a_row;
  last_loss_ = cursor.last_loss;
  epoch_loss_ = {.sum = cursor.epoch_loss_sum, .count = cursor.epoch_loss_count};
  evaluation_ = cursor.evaluation;
  traffic_at_start_ = cursor.traffic;
  logger_.Info("going on from the checkpoint after step ", step_, " of ", total_steps_);
  return absl::OkStatus();
}

absl::Status TrainingRun::SaveCheckpoint() {
  const TrainingCursor cursor = {.step = step_,
                                 .epoch = epoch_,
                                 .ranks = spec_.workers,
                                 .deal_step = deal_step_,
                                 .deal_offset = deal_offset_,
                                 .samples = samples_,
                                 .skipped = report_.skipped,
                                 .skipped_in_a_row = skipped_in_a_row_,
                                 .last_loss = last_loss_,
                                 .epoch_loss_sum = epoch_loss_.sum,
                                 .epoch_loss_count = epoch_loss_.count,
                                 .evaluation = evaluation_,
                                 .traffic = Sum(traffic_at_start_, session_->traffic())};
  std::vector<CheckpointFile> files;
  if (rank_ == 0) files.push_back({"parameters.pt", FormatParameters(*model_)});
  return session_->SaveCheckpoint(SaveTrainingState(*model_, *optimizer_, cursor),
                                  std::move(files));
}

absl::Status TrainingRun::Train() {
  started_ = last_report_ = last_log_ = clock_.Now();
  // A checkpoint after an epoch's last step comes before its end.
  bool within_epoch = joined_.restored_step > 0;
  while (step_ < total_steps_ || within_epoch) {
    const uint64_t steps = sampler_->StepsAfter(deal_offset_);
    BatchStream batches(data_->sets.training.get(), sampler_.get(), StreamOptions(steps));
    if (!within_epoch) epoch_loss_ = LossMean{};
    within_epoch = false;
    for (uint64_t i = step_ - deal_step_; i < steps && step_ < total_steps_; ++i) {
      if (stopped()) return absl::CancelledError("stopped");
      if (absl::Status status = TrainStep(&batches, i); !status.ok()) return status;
    }
    ++epoch_;
    deal_step_ = step_;
    deal_offset_ = 0;
    if (step_ == total_steps_) break;
    if (absl::Status status = EvaluateNow(); !status.ok()) return status;
  }
  report_.wall_seconds = absl::ToDoubleSeconds(clock_.Now() - started_);
  return absl::OkStatus();
}

absl::Status TrainingRun::TrainStep(BatchStream* batches, uint64_t step_of_epoch) {
  const absl::Time begin = clock_.Now();
  const absl::StatusOr<StepResult> result = RunPasses(batches, step_of_epoch);
  if (!result.ok()) return result.status();
  ++step_;
  if (absl::Status status = WatchForNonFinite(*result); !status.ok()) return status;
  ClipGradients(spec_.optimizer, parallel_->parameters());
  SetLearningRate(optimizer_.get(),
                  LearningRate(spec_.lr_schedule, spec_.optimizer.lr, step_, total_steps_));
  optimizer_->step();
  if (result->checkpoint_due) {
    if (absl::Status status = SaveCheckpoint(); !status.ok()) return status;
  }
  const absl::Time now = clock_.Now();
  step_times_.Add(now - begin);
  if (step_ % kCompareParametersEvery == 0 && step_ != total_steps_) {
    session_->ReportParameters(step_, parallel_->ParametersSha256());
  }
  Report(now, /*always=*/false);
  return absl::OkStatus();
}

// Forward and backward on this rank's batches of the step, then the mean over all ranks into .grad.
absl::StatusOr<StepResult> TrainingRun::RunPasses(BatchStream* batches, uint64_t step_of_epoch) {
  optimizer_->zero_grad(/*set_to_none=*/false);
  LossMean loss;
  for (uint32_t pass = 0; pass < spec_.gradient_accumulation_steps; ++pass) {
    const size_t samples = batches->SamplesOf(step_of_epoch, pass);
    if (samples == 0) break;
    const absl::StatusOr<Batch> batch = batches->Next();
    if (!batch.ok()) return batch.status();
    const at::Tensor scores = model_->forward(batch->inputs);
    const at::Tensor pass_loss =
        torch::nn::functional::cross_entropy(scores.flatten(0, -2), batch->targets.flatten());
    pass_loss.backward();
    loss.Add(pass_loss.item<double>());
    samples_ += samples;
  }
  if (loss.count == 0) return parallel_->Skip();
  last_loss_ = loss.value();
  epoch_loss_.Add(last_loss_);
  report_loss_.Add(last_loss_);
  return parallel_->Synchronize();
}

absl::Status TrainingRun::WatchForNonFinite(const StepResult& result) {
  if (!result.first_skipped_buffer.empty()) {
    logger_.Warning("step ", step_, ": buffer ", result.first_skipped_buffer,
                    " is not finite on this worker; it and those that travel with it become the "
                    "mean of the other workers'");
  }
  if (result.bundles_skipped_here == 0) {
    skipped_in_a_row_ = 0;
    return absl::OkStatus();
  }
  ++report_.skipped;
  ++skipped_in_a_row_;
  if (skipped_in_a_row_ == 1) {
    logger_.Warning("step ", step_, ": the gradient of ", result.first_skipped_tensor,
                    " is not finite (loss ", last_loss_, "), so ", result.bundles_skipped_here,
                    " of ", result.bundles,
                    " bundles go without this worker; if that goes on, lower the learning rate or "
                    "clip gradients (optimizer.clip_norm)");
  }
  if (skipped_in_a_row_ < kMaxSkippedInARow) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("training diverged: gradients of ", skipped_in_a_row_,
                                            " steps in a row were not finite, "
                                            "the last in ",
                                            result.first_skipped_tensor, " at step ", step_,
                                            " with loss ", last_loss_,
                                            "; lower optimizer.lr, or set optimizer.clip_norm"));
}

absl::Status TrainingRun::EvaluateNow() {
  if (data_->sets.test == nullptr) return absl::OkStatus();
  absl::StatusOr<Evaluation> evaluation = Evaluate(model_.get(), *data_->sets.test, options_.stop);
  if (!evaluation.ok()) return evaluation.status();
  evaluation_ = *evaluation;
  logger_.Info(absl::StrFormat("epoch %d, step %d of %d: test accuracy %.2f %%, test loss %.4f",
                               epoch_, step_, total_steps_, evaluation->accuracy * 100,
                               evaluation->loss));
  return absl::OkStatus();
}

void TrainingRun::Report(absl::Time now, bool always) {
  const absl::Duration since = now - last_report_;
  const bool first = step_ == joined_.restored_step + 1;
  if (!always && !first && since < kReportEvery) return;
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
  session_->Report(progress);
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

absl::StatusOr<TrainReport> TrainingRun::Finish() {
  const std::string sha256 = parallel_->ParametersSha256();
  report_.parameters_sha256 = absl::BytesToHexString(sha256);
  session_->ReportParameters(step_, sha256);
  if (absl::Status status = EvaluateNow(); !status.ok()) return status;
  Report(clock_.Now(), /*always=*/true);
  if (rank_ == 0 && !spec_.output.empty()) {
    if (absl::Status status = SaveParameters(*model_, spec_.output); !status.ok()) return status;
    logger_.Info("trained parameters are in ", spec_.output, "/parameters.pt");
  }
  report_.steps = step_;
  report_.train_loss = epoch_loss_.value();
  if (evaluation_.has_value()) {
    report_.test_accuracy = evaluation_->accuracy;
    report_.test_loss = evaluation_->loss;
  }
  report_.step_ms_p50 = step_times_.PercentileMs(50);
  report_.step_ms_p95 = step_times_.PercentileMs(95);
  if (report_.wall_seconds > 0) {
    report_.samples_per_second =
        static_cast<double>(samples_ - samples_at_start_) / report_.wall_seconds;
  }
  report_.traffic = Sum(traffic_at_start_, session_->traffic());
  if (options_.on_trained) options_.on_trained(report_);
  if (absl::Status status = session_->Leave(); !status.ok()) return status;
  return report_;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TrainingData>> LoadTrainingData(const JobSpec& spec,
                                                                     uint32_t rank) {
  return TorchStatus("LibTorch", [&]() -> absl::StatusOr<std::shared_ptr<const TrainingData>> {
    absl::StatusOr<Datasets> sets = OpenDatasets(spec.data, /*with_test=*/rank == 0);
    if (!sets.ok()) return sets.status();
    return std::make_shared<const TrainingData>(TrainingData{*std::move(sets)});
  });
}

absl::StatusOr<TrainReport> RunTraining(const JobSpec& spec, uint32_t rank, Session* session,
                                        const TrainOptions& options, const Logger& logger) {
  return TorchStatus("training failed", [&]() -> absl::StatusOr<TrainReport> {
    TrainingRun run(spec, rank, session, options, logger);
    absl::Status status = TorchStatus("LibTorch", [&] { return run.Prepare(); });
    if (!status.ok()) return status;
    if (options.stop != nullptr && options.stop->load()) return absl::CancelledError("stopped");
    status = run.Join();
    if (!status.ok()) return status;
    absl::StatusOr<TrainReport> report =
        TorchStatus("LibTorch", [&]() -> absl::StatusOr<TrainReport> {
          if (absl::Status restored = run.Restore(); !restored.ok()) return restored;
          if (absl::Status trained = run.Train(); !trained.ok()) return trained;
          return run.Finish();
        });
    if (!report.ok() && !IsRollback(report.status())) session->Abandon(report.status().message());
    return report;
  });
}

}  // namespace sluice
