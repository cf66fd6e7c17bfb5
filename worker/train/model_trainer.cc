// SPDX-License-Identifier: Apache-2.0
#include "worker/train/model_trainer.h"

#include <torch/torch.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "job/job_spec.h"
#include "job/momentum.h"
#include "worker/models/make_model.h"
#include "worker/train/device.h"
#include "worker/train/optimizers.h"
#include "worker/train/parameters_file.h"
#include "worker/train/precision.h"

namespace sluice::worker {
namespace {

constexpr uint32_t kMaxSkippedInARow = 20;
// Below this scale, many float16 gradients round to 0. The initial adjustment does not normally
// reduce the scale this far.
constexpr double kSensibleLossScale = 8;
constexpr uint64_t kTrainingStream = 0x5452;  // Separates this use of the seed from others.

at::Device CudaDevice(int gpu) { return {at::kCUDA, static_cast<c10::DeviceIndex>(gpu)}; }

void SeedDevice(at::Device device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

// The parameters that muon treats as matrices.
std::vector<size_t> MatricesOf(const Model& model, const DataParallel& parallel) {
  const std::vector<std::string> edges = model.EdgeWeights();
  std::vector<size_t> matrices;
  for (size_t i = 0; i < parallel.parameters().size(); ++i) {
    if (parallel.parameters()[i].dim() < 2) continue;
    if (std::find(edges.begin(), edges.end(), parallel.table()[i].name) != edges.end()) continue;
    matrices.push_back(i);
  }
  return matrices;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelTrainer>> ModelTrainer::Create(const job::JobSpec& spec,
                                                                   uint32_t rank,
                                                                   const SampleShape& shape,
                                                                   const Logger* logger) {
  const absl::StatusOr<ChosenDevice> device = ChooseDevice(spec, rank, FindDevices());
  if (!device.ok()) return device.status();
  logger->Info("device: ", device->description);
  std::unique_ptr<ModelTrainer> trainer(new ModelTrainer(spec, logger));
  for (size_t i = 0; i < std::max<size_t>(device->gpus.size(), 1); ++i) {
    absl::StatusOr<std::shared_ptr<Model>> model = trainer->Make(
        shape, device->gpus.empty() ? std::nullopt : std::optional<int>(device->gpus[i]));
    if (!model.ok()) return model.status();
    if (i == 0) {
      trainer->model_ = *std::move(model);
    } else {
      trainer->copies_.push_back(*std::move(model));
    }
  }
  // Ranks have equal parameters, but each rank and each GPU draws its own random numbers during
  // training (dropout).
  torch::manual_seed(CounterRandom(spec.seed, kTrainingStream, rank).Next());
  for (size_t i = 1; i < device->gpus.size(); ++i) {
    SeedDevice(CudaDevice(device->gpus[i]),
               CounterRandom(spec.seed, kTrainingStream, rank, i).Next());
  }
  absl::Status status = trainer->Prepare();
  if (!status.ok()) return status;
  return trainer;
}

absl::StatusOr<std::shared_ptr<Model>> ModelTrainer::Make(const SampleShape& shape,
                                                          std::optional<int> gpu) {
  // Uses the CPU's random numbers on any device, so that ranks start with equal parameters.
  torch::manual_seed(spec_.seed);
  absl::StatusOr<std::shared_ptr<Model>> model = MakeModel(spec_.model, shape);
  if (model.ok() && gpu.has_value()) (*model)->to(CudaDevice(*gpu));
  return model;
}

// Sets up precision and copies of the new model.
absl::Status ModelTrainer::Prepare() {
  type_ = ComputingType(spec_.training.precision);
  if (type_ == at::kHalf) loss_scale_.emplace();
  master_values_ = ConvertParameters(model_.get(), type_);
  if (copies_.empty()) return absl::OkStatus();
  for (const std::shared_ptr<Model>& copy : copies_) ConvertParameters(copy.get(), type_);
  absl::StatusOr<std::unique_ptr<ModuleReplicas>> replicas =
      ModuleReplicas::Create(*model_, {copies_.begin(), copies_.end()});
  if (!replicas.ok()) return replicas.status();
  replicas_ = *std::move(replicas);
  return absl::OkStatus();
}

absl::Status ModelTrainer::Join(JobClient* client) {
  absl::StatusOr<std::unique_ptr<DataParallel>> parallel =
      DataParallel::Join(*model_, client,
                         {.accumulation_steps = spec_.training.gradient_accumulation_steps,
                          .master_values = std::exchange(master_values_, {}),
                          .atomic_step = loss_scale_.has_value(),
                          .shards_update = job::ShardOptimizer(spec_).has_value(),
                          .sends_weights = job::SendsWeights(spec_),
                          .streams = job::StreamsFragments(spec_),
                          .merge_alpha = spec_.local.merge_alpha,
                          .replicas = replicas_.get()});
  if (!parallel.ok()) return parallel.status();
  parallel_ = *std::move(parallel);
  if (spec_.optimizer.location == job::UpdateLocation::kWorkers) {
    absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> optimizer =
        MakeOptimizer(spec_.optimizer, parallel_->parameters(), MatricesOf(*model_, *parallel_));
    if (!optimizer.ok()) return optimizer.status();
    optimizer_ = *std::move(optimizer);
    momentum_ = job::JobMomentum(spec_, parallel_->table());
  }
  if (spec_.training.ema_decay > 0) ema_.emplace(spec_.training.ema_decay, parallel_->parameters());
  return absl::OkStatus();
}

absl::StatusOr<TrainerStep> ModelTrainer::Step(const StepInput& plan, BatchStream* batches) {
  TrainerStep done;
  absl::Status status = plan.closed ? DropBatches(batches, plan.step_of_deal)
                                    : RunPasses(batches, plan.step_of_deal, &done);
  if (status.ok() && job::SendsWeights(spec_) && done.had_samples)
    status = OwnStep(plan, done.loss);
  if (status.ok() && plan.exchange_begins && job::StreamsFragments(spec_)) {
    status = BeginExchange();
  }
  if (status.ok() && plan.exchange_ends) status = EndExchange(plan, &done);
  if (!status.ok()) return status;
  return done;
}

absl::StatusOr<TrainerStep> ModelTrainer::ExchangeOnly(uint64_t step) {
  TrainerStep done;
  absl::Status status = BeginExchange();
  if (status.ok()) status = EndExchange({.step = step}, &done);
  if (!status.ok()) return status;
  return done;
}

absl::Status ModelTrainer::DropBatches(BatchStream* batches, uint64_t step_of_deal) {
  for (uint32_t pass = 0; pass < spec_.training.gradient_accumulation_steps; ++pass) {
    if (batches->SamplesOf(step_of_deal, pass) == 0) break;
    if (absl::Status status = batches->Next().status(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ModelTrainer::OwnStep(const StepInput& plan, double loss) {
  if (absl::Status status = parallel_->ReadGradients(); !status.ok()) return status;
  const bool overflowed = !parallel_->overflowed().empty();
  if (overflowed) {
    if (absl::Status status = CountOverflow(plan.step, loss); !status.ok()) return status;
  } else {
    Optimize(plan.rate, nullptr);
    parallel_->CopyMastersToModule();
    idle_exchanges_ = 0;
  }
  if (loss_scale_.has_value()) UpdateLossScale(plan.step);
  return absl::OkStatus();
}

bool ModelTrainer::HasPart(const TrainerStep& done) {
  if (!job::SendsWeights(spec_)) return done.had_samples;
  return idle_exchanges_++ < spec_.exchange.compression.layout.fragments;
}

absl::Status ModelTrainer::BeginExchange() {
  return parallel_->BeginExchange(/*skip=*/!HasPart({}));
}

absl::Status ModelTrainer::EndExchange(const StepInput& plan, TrainerStep* done) {
  absl::StatusOr<StepResult> result;
  if (job::StreamsFragments(spec_)) {
    result = parallel_->EndExchange();
  } else {
    result = HasPart(*done) ? parallel_->Synchronize() : parallel_->Skip();
  }
  if (!result.ok()) return result.status();
  absl::Status status = WatchForNonFinite(plan.step, done->loss, *result);
  if (!status.ok()) return status;
  if (!job::SendsWeights(spec_) && done->had_samples && loss_scale_.has_value()) {
    UpdateLossScale(plan.step);
  }
  if (!IsEmpty(*result)) {
    if (optimizer_ != nullptr && !job::SendsWeights(spec_)) Optimize(plan.rate, result->plan.get());
    if (ema_.has_value()) ema_->Update();
  }
  parallel_->CopyMastersToModule();
  exchanged_step_ = result->step;
  parallel_->PublishWeights(exchanged_step_, /*is_last=*/false);
  done->checkpoint_due = result->checkpoint_due;
  done->steps_behind = result->steps_behind;
  done->staleness = result->staleness;
  done->members = result->members;
  return absl::OkStatus();
}

// Without lockstep, n counts only this rank, and other ranks' updates arrive in any case.
bool ModelTrainer::IsEmpty(const StepResult& result) const {
  return spec_.exchange.in_lockstep() && result.n_max == 0;
}

void ModelTrainer::Optimize(double rate, const protocol::CompressionPlan* plan) {
  const double momentum =
      plan == nullptr ? momentum_ : job::JobMomentum(spec_, parallel_->table(), plan);
  ClipGradients(spec_.optimizer, parallel_->parameters());
  SetMomentum(spec_.optimizer, momentum, optimizer_.get());
  SetLearningRate(optimizer_.get(), rate * job::RateFactor(spec_.optimizer, momentum));
  optimizer_->step();
}

at::Tensor ModelTrainer::RunPass(Model* model, const Batch& batch) {
  const auto smoothing = torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(
      spec_.training.label_smoothing);
  const double scale = loss_scale_.has_value() ? loss_scale_->value() : 1;
  const at::Tensor scores = Scores(model, batch.inputs, type_);
  at::Tensor loss = torch::nn::functional::cross_entropy(
      scores.flatten(0, -2), batch.targets.flatten().to(scores.device()), smoothing);
  (scale == 1 ? loss : loss * scale).backward();
  return loss.detach();
}

// Runs forward and backward on this rank's batches of the step. Distributes the passes over the
// GPUs, which run them in parallel.
absl::Status ModelTrainer::RunPasses(BatchStream* batches, uint64_t step_of_deal,
                                     TrainerStep* done) {
  if (optimizer_ != nullptr) optimizer_->zero_grad(/*set_to_none=*/false);
  parallel_->ScaleGradients(
      static_cast<float>(1 / (loss_scale_.has_value() ? loss_scale_->value() : 1)));
  uint32_t passes = 0;
  while (passes < spec_.training.gradient_accumulation_steps &&
         batches->SamplesOf(step_of_deal, passes) > 0) {
    done->samples += batches->SamplesOf(step_of_deal, passes++);
  }
  done->had_samples = passes > 0;
  if (passes == 0) return absl::OkStatus();
  if (replicas_ != nullptr) replicas_->Load();
  const auto models = static_cast<uint32_t>(1 + copies_.size());
  std::vector<at::Tensor> losses(passes);
  for (uint32_t first = 0, on_copies = 0; first < passes; first += models) {
    const uint32_t together = std::min(models, passes - first);
    std::vector<Batch> round;
    for (uint32_t i = 0; i < together; ++i) {
      absl::StatusOr<Batch> batch = batches->Next();
      if (!batch.ok()) return batch.status();
      round.push_back(*std::move(batch));
    }
    for (uint32_t i = 1; i < together; ++i) {
      losses[first + i] = RunPass(copies_[i - 1].get(), round[i]);
    }
    on_copies += together - 1;
    if (replicas_ != nullptr) parallel_->CountPassesOfReplicas(on_copies);
    // The model's own pass goes last, because gradients are sent during the step's last pass.
    losses[first] = RunPass(model_.get(), round[0]);
  }
  if (replicas_ != nullptr) replicas_->AverageBuffers(std::min(models, passes) - 1);
  double loss = 0;
  for (const at::Tensor& of_pass : losses) loss += of_pass.item<double>();
  done->loss = loss / passes;
  return absl::OkStatus();
}

absl::Status ModelTrainer::WatchForNonFinite(uint64_t step, double loss, const StepResult& result) {
  if (!result.first_skipped_buffer.empty()) {
    logger_.Warning("step ", step, ": buffer ", result.first_skipped_buffer,
                    " is not finite on this worker; it and the other buffers of its bundle get the "
                    "mean of the other workers");
  }
  if (!parallel_->overflowed().empty()) {
    return job::SendsWeights(spec_) ? absl::OkStatus() : CountOverflow(step, loss);
  }
  if (result.bundles_skipped_here == 0) {
    skipped_in_a_row_ = 0;
    return absl::OkStatus();
  }
  ++skipped_;
  if (skipped_in_a_row_ == 0) {
    logger_.Warning("step ", step, ": the gradient of ", result.first_skipped_tensor,
                    " is not finite (loss ", loss, "), so ", result.bundles_skipped_here, " of ",
                    result.bundles,
                    " bundles exclude this worker; if that continues, lower the learning rate or "
                    "clip gradients (optimizer.clip_norm)");
  }
  return CountNonFinite(step, loss, result.first_skipped_tensor);
}

// Handles a step that this worker skips because the gradient overflowed.
absl::Status ModelTrainer::CountOverflow(uint64_t step, double loss) {
  const std::string& overflowed = parallel_->overflowed();
  ++skipped_;
  // If the loss scale can still shrink, the next steps use a smaller one.
  if (loss_scale_.has_value() && !loss_scale_->at_least()) return absl::OkStatus();
  if (!loss_scale_.has_value() && skipped_in_a_row_ == 0) {
    logger_.Warning("step ", step, ": the gradient of ", overflowed, " is not finite (loss ", loss,
                    "), so this worker skips the step; if that continues, lower the learning rate "
                    "or clip gradients (optimizer.clip_norm)");
  }
  return CountNonFinite(step, loss, overflowed);
}

absl::Status ModelTrainer::CountNonFinite(uint64_t step, double loss, const std::string& tensor) {
  if (++skipped_in_a_row_ < kMaxSkippedInARow) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("training diverged: gradients of ", skipped_in_a_row_,
                                            " steps in a row were not finite, the last in ", tensor,
                                            " at step ", step, " with loss ", loss,
                                            "; lower optimizer.lr, or set optimizer.clip_norm"));
}

void ModelTrainer::UpdateLossScale(uint64_t step) {
  loss_scale_->Update(!parallel_->overflowed().empty());
  if (loss_scale_->value() >= kSensibleLossScale || warned_of_scale_) return;
  warned_of_scale_ = true;
  logger_.Warning("step ", step, ": the loss scale of fp16 fell to ", loss_scale_->value(),
                  ", because gradients overflowed repeatedly (the last in ",
                  parallel_->overflowed(),
                  "); small gradients are lost now: use precision bf16, or lower optimizer.lr");
}

void ModelTrainer::SwapTested() {
  if (ema_.has_value()) {
    ema_->Swap();
  } else {
    parallel_->SwapPublished();
  }
  parallel_->CopyMastersToModule();
}

absl::StatusOr<Evaluation> ModelTrainer::Test(const Dataset& data, const std::atomic<bool>* stop) {
  SwapTested();
  absl::StatusOr<Evaluation> evaluation = Evaluate(model_.get(), data, stop, type_);
  SwapTested();
  return evaluation;
}

TrainedState ModelTrainer::Trained() {
  std::vector<at::Device> copies_on;
  for (const std::shared_ptr<Model>& copy : copies_) {
    copies_on.push_back(copy->parameters().front().device());
  }
  return {.model = parallel_->StateDict(*model_),
          .optimizer = optimizer_.get(),
          .loss_scale = loss_scale_.has_value() ? &*loss_scale_ : nullptr,
          .ema = ema_.has_value() ? &*ema_ : nullptr,
          .published = parallel_->published(),
          .copies_on = std::move(copies_on)};
}

std::string ModelTrainer::SaveState(TrainingCursor cursor) {
  cursor.skipped = skipped_;
  cursor.skipped_in_a_row = skipped_in_a_row_;
  cursor.rank = joined().rank;
  cursor.idle_exchanges = idle_exchanges_;
  return SaveTrainingState(Trained(), cursor);
}

absl::Status ModelTrainer::RestoreState(absl::string_view bytes, TrainingCursor* cursor) {
  absl::Status status = RestoreTrainingState(bytes, Trained(), cursor);
  parallel_->ParametersRestored();
  skipped_ = cursor->skipped;
  skipped_in_a_row_ = cursor->skipped_in_a_row;
  if (!status.ok() || !job::StreamsFragments(spec_)) return status;
  // The changes of a state that is not this worker's own were or will be sent by another worker, so
  // this worker begins with the parameters that all share.
  if (cursor->rank == joined().rank && joined().steps_behind == 0) {
    idle_exchanges_ = cursor->idle_exchanges;
  } else {
    parallel_->AdoptPublished();
  }
  return absl::OkStatus();
}

std::string ModelTrainer::FormatParameters(absl::string_view note) {
  SwapTested();
  std::string bytes = sluice::worker::FormatParameters(parallel_->StateDict(*model_), note);
  SwapTested();
  return bytes;
}

absl::StatusOr<std::string> ModelTrainer::FormatSafetensors() {
  SwapTested();
  absl::StatusOr<std::string> bytes =
      sluice::worker::FormatSafetensors(parallel_->StateDict(*model_));
  SwapTested();
  return bytes;
}

}  // namespace sluice::worker
