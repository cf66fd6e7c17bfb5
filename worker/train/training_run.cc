// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training_run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "worker/train/learning_rate.h"
#include "worker/train/parameters_file.h"

namespace sluice::worker {
namespace {

constexpr uint64_t kCompareParametersEvery = 500;  // Exchanges.

}  // namespace

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
  absl::StatusOr<std::unique_ptr<ModelTrainer>> trainer =
      ModelTrainer::Create(spec_, rank_, data_->sets.training->shape(), &logger_);
  if (!trainer.ok()) return trainer.status();
  trainer_ = *std::move(trainer);
  for (uint32_t rank = 0; rank < spec_.workers; ++rank) members_.push_back(rank);
  sampler_ = std::make_shared<const ShardSampler>(SamplerOptions());
  total_steps_ = TotalSteps();
  logger_.Info("model ", spec_.model.name, " with ", trainer_->parameters(), " parameters; ",
               data_->sets.training->size(), " training samples, ", sampler_->steps_per_epoch(),
               " steps per epoch, ", total_steps_, " in all; LibTorch uses ", at::get_num_threads(),
               at::get_num_threads() == 1 ? " thread" : " threads");
  return absl::OkStatus();
}

ShardSamplerOptions TrainingRun::SamplerOptions() const {
  return {.samples = data_->sets.training->size(),
          .ranks = static_cast<uint32_t>(members_.size()),
          .rank = static_cast<uint32_t>(std::find(members_.begin(), members_.end(), rank_) -
                                        members_.begin()),
          .batch_size = spec_.training.batch_size_per_worker,
          .passes_per_step = spec_.training.gradient_accumulation_steps,
          .seed = spec_.seed};
}

// Returns this run's part of the deal, which has `steps` steps.
BatchStreamOptions TrainingRun::StreamOptions(uint64_t steps) const {
  return {.epoch = {.seed = spec_.seed, .epoch = epoch_},
          .offset = deal_offset_,
          .first_step = step_ - deal_step_,
          .end_step = std::min(steps, total_steps_ - deal_step_),
          .passes_per_step = spec_.training.gradient_accumulation_steps,
          .prefetch = spec_.data.prefetch};
}

uint64_t TrainingRun::TotalSteps() const {
  if (spec_.training.steps > 0) return spec_.training.steps;
  if (epoch_ >= spec_.training.epochs) return 0;
  return deal_step_ + sampler_->StepsAfter(deal_offset_) +
         (spec_.training.epochs - epoch_ - 1) * sampler_->steps_per_epoch();
}

// Deals the rest of the epoch's deck to the current ranks. Other ranks may have begun the deck.
void TrainingRun::RestoreDeal(const TrainingCursor& cursor) {
  deal_step_ = cursor.deal_step;
  deal_offset_ = cursor.deal_offset;
  std::vector<uint32_t> now = std::exchange(members_, cursor.members);
  if (members_.empty()) {
    for (uint32_t rank = 0; rank < cursor.ranks; ++rank) members_.push_back(rank);
  }
  if (spec_.exchange.elastic()) now = joined_.members.empty() ? members_ : joined_.members;
  const auto before = members_.size();
  DealTo(std::move(now));
  if (before == members_.size()) return;
  logger_.Info("the checkpoint is of ", before, " workers; ",
               data_->sets.training->size() - deal_offset_, " of ", data_->sets.training->size(),
               " samples of this pass over the data are left for the ", members_.size(),
               " present workers");
}

void TrainingRun::DealTo(std::vector<uint32_t> members) {
  if (members.size() != members_.size()) {
    ShardSamplerOptions before = SamplerOptions();
    before.rank = 0;
    deal_offset_ = ShardSampler(before).OffsetAfter(deal_offset_, step_ - deal_step_);
    deal_step_ = step_;
  }
  members_ = std::move(members);
  sampler_ = std::make_shared<const ShardSampler>(SamplerOptions());
  total_steps_ = TotalSteps();
  results_.SetTotalSteps(total_steps_);
}

absl::Status TrainingRun::Join(JobClient* client) {
  if (absl::Status status = trainer_->Join(client); !status.ok()) return status;
  session_ = trainer_->session();
  joined_ = trainer_->joined();
  if (!joined_.parameters_agree && job::ShardOptimizer(spec_).has_value()) {
    logger_.Info("the shards got their parameters from rank 0 and do the updates");
  } else if (!joined_.parameters_agree) {
    logger_.Info(spec_.relays.enabled()
                     ? "all start from the parameters of rank 0, which the relays send"
                     : "initial parameters differed between ranks: all start from those of rank 0");
  }
  SetWork();
  exchanges_behind_ = joined_.steps_behind;
  told_behind_ = exchanges_behind_ > 0;
  if (told_behind_) {
    logger_.Info(
        "the job is at a later step; this worker applies the other workers' results, and takes "
        "part once it has caught up");
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::Restore() {
  if (joined_.restored_step == 0) return absl::OkStatus();
  TrainingCursor cursor;
  const absl::Status status = trainer_->RestoreState(joined_.restored, &cursor);
  if (!status.ok()) return status;
  joined_.restored = std::string();
  step_ = cursor.step;
  epoch_ = cursor.epoch;
  RestoreDeal(cursor);
  others_tested_ = epoch_ > 0 && rank_ != FirstMember();
  exchange_ = joined_.restored_step;
  if (cursor.step > total_steps_ || !rounds_.CanFollow(exchange_, cursor.step, total_steps_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint after exchange ", joined_.restored_step,
                     " holds the training state after step ", cursor.step, " of ", total_steps_,
                     " in all: was the job made shorter since then?"));
  }
  RestoreBest(&cursor);
  results_.Restore(cursor);
  logger_.Info("continuing from the checkpoint after step ", step_, " of ", total_steps_);
  return absl::OkStatus();
}

absl::Status TrainingRun::SaveCheckpoint() {
  TrainingCursor cursor = {.step = step_,
                           .epoch = epoch_,
                           .ranks = static_cast<uint32_t>(members_.size()),
                           .deal_step = deal_step_,
                           .deal_offset = deal_offset_};
  if (spec_.exchange.elastic()) cursor.members = members_;
  results_.AddTo(&cursor, clock_.Now());
  std::vector<CheckpointFile> files;
  if (rank_ == 0) files.push_back({"parameters.pt", trainer_->FormatParameters()});
  return session_->SaveCheckpoint(trainer_->SaveState(cursor), std::move(files));
}

absl::Status TrainingRun::Train() {
  results_.Start(clock_.Now(), session_, total_steps_, trainer_->parameters());
  // A checkpoint after an epoch's last step is written before the epoch ends.
  bool within_epoch = joined_.restored_step > 0;
  while (step_ < total_steps_ || within_epoch) {
    if (!within_epoch) results_.BeginEpoch();
    within_epoch = false;
    absl::Status trained = TrainEpoch();
    if (trained.ok() && step_ == total_steps_) trained = CloseExchanges();
    if (!trained.ok()) return trained;
    results_.EndEpoch(++epoch_);
    deal_step_ = step_;
    deal_offset_ = 0;
    if (step_ == total_steps_) break;
    if (absl::Status status = EvaluateNow(); !status.ok()) return status;
  }
  results_.Stop(clock_.Now());
  return absl::OkStatus();
}

// Trains the rest of the epoch, with a new deal each time workers join or leave.
absl::Status TrainingRun::TrainEpoch() {
  do {
    const std::shared_ptr<const ShardSampler> sampler = sampler_;
    const uint64_t steps = sampler->StepsAfter(deal_offset_);
    BatchStream batches(data_->sets.training.get(), sampler.get(), StreamOptions(steps));
    for (uint64_t i = step_ - deal_step_; i < steps && step_ < total_steps_; ++i) {
      if (stopped()) return absl::CancelledError("stopped");
      if (absl::Status status = TrainStep(&batches, i); !status.ok()) return status;
      if (sampler != sampler_) break;
    }
  } while (step_ < total_steps_ && step_ - deal_step_ < sampler_->StepsAfter(deal_offset_));
  return absl::OkStatus();
}

// Exchanges each fragment once more, so that all workers end with equal parameters. A run that
// continues from a checkpoint may have done some of these exchanges.
absl::Status TrainingRun::CloseExchanges() {
  const uint64_t last = rounds_.InAll(total_steps_);
  while (rounds_.closes() && exchange_ < last) {
    if (stopped()) return absl::CancelledError("stopped");
    SetShardRate(0);
    const absl::StatusOr<TrainerStep> done = trainer_->ExchangeOnly(step_);
    if (!done.ok()) return done.status();
    absl::Status status = EndExchange(*done);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::TrainStep(BatchStream* batches, uint64_t step_of_deal) {
  const absl::Time begin = clock_.Now();
  const StepInput plan{
      .step = step_ + 1,
      .step_of_deal = step_of_deal,
      .rate = LearningRate(spec_.lr_schedule, spec_.optimizer.lr, step_ + 1, total_steps_),
      .exchange_begins = rounds_.BeginsAfter(step_ + 1, total_steps_),
      .exchange_ends = rounds_.EndsAfter(step_ + 1, total_steps_),
      .closed = exchanges_behind_ > 0};
  if (plan.exchange_begins) {
    SetShardRate(plan.rate);
    SetWork();
  }
  const absl::StatusOr<TrainerStep> done = trainer_->Step(plan, batches);
  if (!done.ok()) return done.status();
  ++step_;
  FinishedStep finished{.step = step_,
                        .samples = done->samples,
                        .learning_rate = plan.rate,
                        .begins_epoch = step_of_deal == 0 && deal_offset_ == 0,
                        .breaks_left = BreaksLeft()};
  if (done->had_samples) finished.loss = done->loss;
  if (plan.exchange_ends) finished.staleness = done->staleness;
  results_.CountStep(finished);
  if (plan.exchange_ends) {
    if (absl::Status status = EndExchange(*done); !status.ok()) return status;
  }
  const absl::Time now = clock_.Now();
  if (!plan.exchange_ends) MeasureStep(now - begin);
  results_.EndStep(now - begin, now);
  return absl::OkStatus();
}

absl::Status TrainingRun::EndExchange(const TrainerStep& done) {
  ++exchange_;
  FallBehind(done);
  // The new deal must precede the checkpoint, which contains the participants of the next step.
  if (!done.members.empty() && done.members != members_) DealTo(done.members);
  if (done.checkpoint_due) {
    if (absl::Status status = SaveCheckpoint(); !status.ok()) return status;
  }
  if (exchange_ % kCompareParametersEvery == 0 && step_ != total_steps_) {
    ReportParameters(trainer_->ParametersSha256());
  }
  return absl::OkStatus();
}

void TrainingRun::MeasureStep(absl::Duration took) {
  constexpr double kOld = 0.8;
  step_time_ = step_time_ == absl::ZeroDuration() ? took : kOld * step_time_ + (1 - kOld) * took;
}

// All workers train equally many samples in the same steps. Only a quorum makes use of the slack.
void TrainingRun::SetWork() {
  const uint64_t steps = job::StepsPerExchange(spec_);
  const uint64_t batches = steps * spec_.training.gradient_accumulation_steps;
  const absl::Duration slack = static_cast<double>(spec_.local.fragment_delay) * step_time_;
  session_->SetWork({.samples = batches * spec_.training.batch_size_per_worker,
                     .steps = steps,
                     .slack_us = spec_.exchange.quorum == 0
                                     ? 0
                                     : static_cast<uint64_t>(absl::ToInt64Microseconds(slack))});
}

void TrainingRun::SetShardRate(double rate) {
  if (!job::ShardOptimizer(spec_).has_value()) return;
  session_->SetRate(static_cast<float>(job::ShardRate(spec_, rate)));
}

void TrainingRun::FallBehind(const TrainerStep& done) {
  if (exchanges_behind_ > 0) --exchanges_behind_;
  exchanges_behind_ = std::max(exchanges_behind_, done.steps_behind);
  if (done.steps_behind == 0 || told_behind_) return;
  told_behind_ = true;
  logger_.Warning("step ", step_, ": this worker was late, and ", done.steps_behind,
                  job::SendsWeights(spec_) ? " exchanges" : " steps",
                  " have closed without it; it skips them and their samples, now and whenever it "
                  "is late again");
}

void TrainingRun::ReportParameters(const std::string& sha256) {
  if (spec_.exchange.in_lockstep()) session_->ReportParameters(exchange_, sha256);
}

// With elastic membership, rank 0 may have left. All ranks know the participants of the last step,
// but in asynchronous modes two ranks may know different ones for a moment and both test.
uint32_t TrainingRun::FirstMember() const {
  return spec_.exchange.elastic() ? members_.front() : 0;
}

absl::Status TrainingRun::EvaluateNow() {
  if (rank_ != FirstMember()) {
    others_tested_ = true;
    return absl::OkStatus();
  }
  if (data_->sets.test == nullptr) return absl::OkStatus();
  if (std::exchange(others_tested_, false)) AdoptBest();
  const absl::StatusOr<Evaluation> evaluation = trainer_->Test(*data_->sets.test, options_.stop);
  if (!evaluation.ok()) return evaluation.status();
  results_.AddEvaluation(epoch_, *evaluation, clock_.Now());
  session_->Tested(evaluation->accuracy);
  KeepIfBest(*evaluation);
  return absl::OkStatus();
}

uint64_t TrainingRun::BreaksLeft() const {
  const uint64_t end = deal_step_ + sampler_->StepsAfter(deal_offset_);
  if (end >= total_steps_) return 1;
  const uint64_t steps_per_epoch = sampler_->steps_per_epoch();
  return 1 + (total_steps_ - end + steps_per_epoch - 1) / steps_per_epoch;
}

std::string TrainingRun::BestPath() const { return absl::StrCat(spec_.output, "/best.pt"); }

void TrainingRun::RestoreBest(TrainingCursor* cursor) const {
  if (!cursor->best.has_value()) return;
  const uint64_t remembered = cursor->best->step;
  std::optional<BestTest> written;
  if (rank_ == FirstMember() && !spec_.output.empty()) {
    written = ParseBestTest(ReadNote(BestPath()).value_or(""));
  }
  cursor->best = BestToGoOnFrom(cursor->best, written, MeasureOf(spec_.data));
  if (rank_ != FirstMember() || spec_.output.empty()) return;
  if (!cursor->best.has_value()) {
    logger_.Warning(BestPath(), " is not the file that this job wrote after step ", remembered,
                    ": the next test writes a new one");
  } else if (cursor->best->step > step_) {
    logger_.Info(BestPath(), " is of step ", cursor->best->step,
                 ", which this run has not reached again yet; it stays until a test is better");
  }
}

// After other ranks have tested, best.pt may be theirs, if the ranks share a folder.
void TrainingRun::AdoptBest() {
  if (spec_.output.empty()) return;
  const std::optional<BestTest> written = ParseBestTest(ReadNote(BestPath()).value_or(""));
  if (written.has_value() && results_.IsBest(*written)) results_.SetBest(*written);
}

void TrainingRun::KeepIfBest(const Evaluation& evaluation) {
  const BestTest test{.step = step_, .accuracy = evaluation.accuracy, .loss = evaluation.loss};
  if (spec_.output.empty() || !results_.IsBest(test)) return;
  const absl::Status saved =
      SaveParameters(trainer_->FormatParameters(FormatBestTest(test)), BestPath());
  if (!saved.ok()) {
    logger_.Warning("cannot save the best parameters so far: ", saved.message());
    return;
  }
  results_.SetBest(test);
}

// Writes the trained parameters to `path`, and beside it to parameters.safetensors.
absl::Status TrainingRun::SaveTrained(const std::string& path) {
  absl::Status saved = SaveParameters(trainer_->FormatParameters(), path);
  if (!saved.ok()) return saved;
  const absl::StatusOr<std::string> bytes = trainer_->FormatSafetensors();
  if (!bytes.ok()) return bytes.status();
  return SaveParameters(*bytes, absl::StrCat(spec_.output, "/parameters.safetensors"));
}

absl::StatusOr<TrainReport> TrainingRun::Finish() {
  const std::string sha256 = trainer_->ParametersSha256();
  ReportParameters(sha256);
  if (absl::Status status = EvaluateNow(); !status.ok()) return status;
  if (rank_ == FirstMember() && !spec_.output.empty()) {
    const std::string path = absl::StrCat(spec_.output, "/parameters.pt");
    if (absl::Status saved = SaveTrained(path); !saved.ok()) return saved;
    logger_.Info("trained parameters are in ", path);
    if (const std::optional<BestTest>& best = results_.best(); best.has_value()) {
      logger_.Info("best.pt beside them is of step ", best->step, ": ",
                   DescribeTest(best->accuracy, best->loss, MeasureOf(spec_.data)));
    }
  }
  TrainReport report = results_.Finish(clock_.Now());
  report.rounds = exchange_;
  report.skipped = trainer_->skipped();
  report.parameters = trainer_->parameters();
  report.parameters_sha256 = absl::BytesToHexString(sha256);
  if (options_.on_trained) options_.on_trained(report);
  trainer_->PublishLastWeights();
  if (absl::Status status = session_->Leave(); !status.ok()) return status;
  return report;
}

}  // namespace sluice::worker
