#include "worker/train/learner.h"

#include <torch/torch.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "worker/models/make_model.h"
#include "worker/train/optimizers.h"
#include "worker/train/parameters_file.h"

namespace sluice {
namespace {

constexpr uint32_t kMaxSkippedInARow = 20;
constexpr uint64_t kTrainingStream = 0x5452;  // Keeps this use of the seed apart from others.

}  // namespace

absl::StatusOr<std::unique_ptr<Learner>> Learner::Create(const JobSpec& spec, uint32_t rank,
                                                         const SampleShape& shape, Session* session,
                                                         const Logger* logger) {
  std::unique_ptr<Learner> learner(new Learner(spec, logger));
  torch::manual_seed(spec.seed);
  absl::StatusOr<std::shared_ptr<Model>> model = MakeModel(spec.model, shape);
  if (!model.ok()) return model.status();
  learner->model_ = *std::move(model);
  // Ranks have equal parameters, but what a model draws while it trains (dropout) is each rank's
  // own.
  torch::manual_seed(CounterRandom(spec.seed, kTrainingStream, rank).Next());
  absl::StatusOr<std::unique_ptr<DataParallel>> parallel = DataParallel::Create(
      *learner->model_, session, {.accumulation_steps = spec.gradient_accumulation_steps});
  if (!parallel.ok()) return parallel.status();
  learner->parallel_ = *std::move(parallel);
  absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> optimizer =
      MakeOptimizer(spec.optimizer, learner->parallel_->parameters());
  if (!optimizer.ok()) return optimizer.status();
  learner->optimizer_ = *std::move(optimizer);
  return learner;
}

absl::StatusOr<LearnerStep> Learner::Step(uint64_t step, BatchStream* batches,
                                          uint64_t step_of_deal, double rate) {
  LearnerStep done;
  const absl::StatusOr<StepResult> result = RunPasses(batches, step_of_deal, &done);
  if (!result.ok()) return result.status();
  if (absl::Status status = WatchForNonFinite(step, done.loss, *result); !status.ok()) {
    return status;
  }
  ClipGradients(spec_.optimizer, parallel_->parameters());
  SetLearningRate(optimizer_.get(), rate);
  optimizer_->step();
  done.checkpoint_due = result->checkpoint_due;
  return done;
}

// Forward and backward on this rank's batches of the step, then the mean over all ranks into .grad.
absl::StatusOr<StepResult> Learner::RunPasses(BatchStream* batches, uint64_t step_of_deal,
                                              LearnerStep* done) {
  optimizer_->zero_grad(/*set_to_none=*/false);
  double loss = 0;
  uint32_t passes = 0;
  for (; passes < spec_.gradient_accumulation_steps; ++passes) {
    const size_t samples = batches->SamplesOf(step_of_deal, passes);
    if (samples == 0) break;
    const absl::StatusOr<Batch> batch = batches->Next();
    if (!batch.ok()) return batch.status();
    const at::Tensor scores = model_->forward(batch->inputs);
    const at::Tensor pass_loss =
        torch::nn::functional::cross_entropy(scores.flatten(0, -2), batch->targets.flatten());
    pass_loss.backward();
    loss += pass_loss.item<double>();
    done->samples += samples;
  }
  if (passes == 0) return parallel_->Skip();
  done->had_samples = true;
  done->loss = loss / passes;
  return parallel_->Synchronize();
}

absl::Status Learner::WatchForNonFinite(uint64_t step, double loss, const StepResult& result) {
  if (!result.first_skipped_buffer.empty()) {
    logger_.Warning("step ", step, ": buffer ", result.first_skipped_buffer,
                    " is not finite on this worker; it and those that travel with it become the "
                    "mean of the other workers'");
  }
  if (result.bundles_skipped_here == 0) {
    skipped_in_a_row_ = 0;
    return absl::OkStatus();
  }
  ++skipped_;
  ++skipped_in_a_row_;
  if (skipped_in_a_row_ == 1) {
    logger_.Warning("step ", step, ": the gradient of ", result.first_skipped_tensor,
                    " is not finite (loss ", loss, "), so ", result.bundles_skipped_here, " of ",
                    result.bundles,
                    " bundles go without this worker; if that goes on, lower the learning rate or "
                    "clip gradients (optimizer.clip_norm)");
  }
  if (skipped_in_a_row_ < kMaxSkippedInARow) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "training diverged: gradients of ", skipped_in_a_row_,
      " steps in a row were not finite, the last in ", result.first_skipped_tensor, " at step ",
      step, " with loss ", loss, "; lower optimizer.lr, or set optimizer.clip_norm"));
}

absl::StatusOr<Evaluation> Learner::Test(const Dataset& data, const std::atomic<bool>* stop) {
  return Evaluate(model_.get(), data, stop);
}

std::string Learner::SaveState(TrainingCursor cursor) const {
  cursor.skipped = skipped_;
  cursor.skipped_in_a_row = skipped_in_a_row_;
  return SaveTrainingState(*model_, *optimizer_, cursor);
}

absl::Status Learner::RestoreState(absl::string_view bytes, TrainingCursor* cursor) {
  absl::Status status = RestoreTrainingState(bytes, model_.get(), optimizer_.get(), cursor);
  skipped_ = cursor->skipped;
  skipped_in_a_row_ = cursor->skipped_in_a_row;
  return status;
}

std::string Learner::FormatParameters() const { return sluice::FormatParameters(*model_); }

}  // namespace sluice
