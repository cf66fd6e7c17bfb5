// SPDX-License-Identifier: Apache-2.0
// ModelTrainer: a rank's model and everything that changes it: passes in the job's precision, the
// exchange of gradients, the optimizer, and the average of the parameters.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "worker/core/job_client.h"
#include "worker/data/batch_stream.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/models/sample_shape.h"
#include "worker/torch/data_parallel.h"
#include "worker/torch/module_replicas.h"
#include "worker/torch/named_tensors.h"
#include "worker/torch/trainable_parameters.h"
#include "worker/train/ema.h"
#include "worker/train/evaluation.h"
#include "worker/train/loss_scale.h"
#include "worker/train/training_state.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::worker {

// Instructions for one step.
struct StepInput {
  uint64_t step = 0;          // Step of the job.
  uint64_t step_of_deal = 0;  // Step within the deal, which selects the batches.
  double rate = 0;            // Learning rate of the local optimizer.
  // An exchange with the other workers begins at the end of the step. It ends there too, unless the
  // job streams fragments.
  bool exchange_begins = true;
  bool exchange_ends = true;
  // The other workers have already closed the exchange that this step belongs to. The step's
  // batches are dropped and nothing is computed.
  bool closed = false;
};

// Result of one step on this rank.
struct TrainerStep {
  // False if this rank was out of data, so that only other ranks contributed.
  bool had_samples = false;
  double loss = 0;  // Mean over the step's passes.
  uint64_t samples = 0;
  // The fields below come from the exchange that ended at the step's end.
  bool checkpoint_due = false;
  uint64_t steps_behind = 0;
  uint64_t staleness = 0;
  std::vector<uint32_t> members{};  // As in StepResult.
};

// Used from the training thread. Exceptions of LibTorch propagate to the caller.
class ModelTrainer {
 public:
  // Builds the model from the job's seed, with equal parameters on all ranks.
  static absl::StatusOr<std::unique_ptr<ModelTrainer>> Create(const job::JobSpec& spec,
                                                              uint32_t rank,
                                                              const SampleShape& shape,
                                                              const Logger* logger);

  // Number of trained elements. May be called before Join.
  uint64_t parameters() const { return CountTrainableElements(*model_); }
  // Call once, before the methods below. `client` must outlive this object.
  absl::Status Join(JobClient* client);
  const JoinInfo& joined() const { return parallel_->joined(); }
  Session* session() const { return parallel_->session(); }

  // Runs forward and backward on this rank's batches, then an update. The update uses the mean over
  // all ranks, and either the local optimizer or the shards apply it. If workers send changes of
  // weights, the local optimizer instead applies this rank's own gradient, and an exchange follows
  // at intervals. Fails with OUT_OF_RANGE if gradients were not finite in too many consecutive
  // steps.
  absl::StatusOr<TrainerStep> Step(const StepInput& plan, BatchStream* batches);
  // Only in jobs that stream fragments: does one exchange without a step. `step` is the last step.
  absl::StatusOr<TrainerStep> ExchangeOnly(uint64_t step);

  // Tests as Evaluate does (evaluation.h), with the average in place of the parameters if the job
  // has one.
  absl::StatusOr<Evaluation> Test(const Dataset& data, const std::atomic<bool>* stop);

  // SaveState fills in this object's part of the cursor, and RestoreState reads it.
  std::string SaveState(TrainingCursor cursor);
  absl::Status RestoreState(absl::string_view bytes, TrainingCursor* cursor);

  // Returns the parameters that Test tests as the content of parameters.pt, with a note
  // (parameters_file.h). They are fp32 in any precision of the job.
  std::string FormatParameters(absl::string_view note = {});
  // Returns them as the content of parameters.safetensors.
  absl::StatusOr<std::string> FormatSafetensors();
  // Gives followers the parameters of the end, if the workers keep them.
  void PublishLastWeights() {
    if (exchanged_step_ > 0) parallel_->PublishWeights(exchanged_step_, /*is_last=*/true);
  }
  std::string ParametersSha256() const { return parallel_->ParametersSha256(); }
  uint64_t skipped() const { return skipped_; }

 private:
  ModelTrainer(const job::JobSpec& spec, const Logger* logger) : spec_(spec), logger_(*logger) {}
  absl::Status Prepare();
  // Makes the job's model on a device; without `gpu`, on the CPU.
  absl::StatusOr<std::shared_ptr<Model>> Make(const SampleShape& shape, std::optional<int> gpu);
  absl::Status RunPasses(BatchStream* batches, uint64_t step_of_deal, TrainerStep* done);
  // Runs forward and backward of one batch. Returns the loss, on its device.
  at::Tensor RunPass(Model* model, const Batch& batch);
  absl::Status DropBatches(BatchStream* batches, uint64_t step_of_deal);
  absl::Status OwnStep(const StepInput& plan, double loss);
  absl::Status BeginExchange();
  // Ends the exchange that began, or does all of it if the job does not stream fragments.
  absl::Status EndExchange(const StepInput& plan, TrainerStep* done);
  // Returns whether this rank has something to contribute to the exchange that begins.
  bool HasPart(const TrainerStep& done);
  absl::Status WatchForNonFinite(uint64_t step, double loss, const StepResult& result);
  absl::Status CountOverflow(uint64_t step, double loss);
  absl::Status CountNonFinite(uint64_t step, double loss, const std::string& tensor);
  void UpdateLossScale(uint64_t step);
  // Returns true if the step has no mean at all: every rank was out of data, or no gradient was
  // finite. The result is the same on all ranks.
  bool IsEmpty(const StepResult& result) const;
  // Runs the optimizer's step. `plan` is null if the step has none.
  void Optimize(double rate, const protocol::CompressionPlan* plan);
  // Swaps the parameters with those that are tested and saved: the average, or within a round the
  // parameters of the last exchange. A second call restores them.
  void SwapTested();
  TrainedState Trained();

  const job::JobSpec& spec_;
  const Logger& logger_;
  at::ScalarType type_ = at::kFloat;  // Type that the model computes in.
  std::shared_ptr<Model> model_;
  std::vector<std::shared_ptr<Model>> copies_;          // On the worker's other GPUs.
  std::unique_ptr<ModuleReplicas> replicas_;            // Wraps copies_; null without copies.
  NamedTensors master_values_;                          // Initial values of masters, until Join.
  std::unique_ptr<DataParallel> parallel_;              // Null before Join.
  std::unique_ptr<torch::optim::Optimizer> optimizer_;  // Null if the shards have the optimizer.
  double momentum_ = 0;                  // Momentum of optimizer_ in steps without a plan.
  std::optional<LossScale> loss_scale_;  // Only with fp16.
  bool warned_of_scale_ = false;
  // If weights are sent: number of exchanges since this rank's last step of its own.
  uint64_t idle_exchanges_ = std::numeric_limits<uint32_t>::max();
  std::optional<Ema> ema_;       // Only with ema_decay.
  uint64_t exchanged_step_ = 0;  // The last exchange that this rank has applied.
  // Steps in which this rank skipped a bundle because a gradient was not finite.
  uint64_t skipped_ = 0;
  uint32_t skipped_in_a_row_ = 0;
};

}  // namespace sluice::worker
