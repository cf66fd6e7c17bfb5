// Learner: a rank's model and all that changes it: passes in the job's precision, the exchange of
// gradients, the optimizer, the average of what it made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "worker/core/session.h"
#include "worker/data/batch_stream.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/models/sample_shape.h"
#include "worker/torch/data_parallel.h"
#include "worker/torch/replicas.h"
#include "worker/train/ema.h"
#include "worker/train/evaluation.h"
#include "worker/train/loss_scale.h"
#include "worker/train/training_state.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::worker {

// What a step is to do.
struct StepPlan {
  uint64_t step = 0;          // Of the job.
  uint64_t step_of_deal = 0;  // Of the batches.
  double rate = 0;            // Of the optimizer that is here.
  bool exchanges = true;      // With the other workers, at its end.
  // The others have closed the step already: its batches are dropped, nothing is computed.
  bool closed = false;
};

// What one step did here.
struct LearnerStep {
  bool had_samples = false;  // False: this rank was out of data, and the step is the others'.
  double loss = 0;           // Mean over the step's passes.
  uint64_t samples = 0;
  // Of the exchange at its end.
  bool checkpoint_due = false;
  uint64_t steps_behind = 0;
  uint64_t staleness = 0;
  std::vector<uint32_t> members{};  // As StepResult has them.
};

// Used from the thread that trains. What LibTorch throws leaves it.
class Learner {
 public:
  // Builds the model from the job's seed; the same on all ranks.
  static absl::StatusOr<std::unique_ptr<Learner>> Create(const job::JobSpec& spec, uint32_t rank,
                                                         const SampleShape& shape, Session* session,
                                                         const Logger* logger);

  absl::StatusOr<JoinInfo> Join();

  // Forward and backward on this rank's batches, and an update: of the mean over all ranks, by the
  // optimizer here or by the shards; or, where workers send changes of weights, by the optimizer
  // here of this rank's own gradient, and now and then an exchange. OUT_OF_RANGE: gradients were
  // not finite for too many steps in a row.
  absl::StatusOr<LearnerStep> Step(const StepPlan& plan, BatchStream* batches);

  // As evaluation.h says; of the average, where the job has one.
  absl::StatusOr<Evaluation> Test(const Dataset& data, const std::atomic<bool>* stop);

  // Both add to, and take from, the cursor what is theirs.
  std::string SaveState(TrainingCursor cursor);
  absl::Status RestoreState(absl::string_view bytes, TrainingCursor* cursor);

  // parameters.pt of what Test tests, with a note (parameters_file.h); fp32 whatever the job
  // computes in.
  std::string FormatParameters(absl::string_view note = {});
  std::string ParametersSha256() const { return parallel_->ParametersSha256(); }
  uint64_t parameters() const { return protocol::TrainedElements(parallel_->table()); }
  uint64_t skipped() const { return skipped_; }

 private:
  Learner(const job::JobSpec& spec, const Logger* logger) : spec_(spec), logger_(*logger) {}
  absl::Status Prepare(Session* session);
  // One of the job's model on a device; none: the CPU.
  absl::StatusOr<std::shared_ptr<Model>> Make(const SampleShape& shape, std::optional<int> gpu);
  absl::Status RunPasses(BatchStream* batches, uint64_t step_of_deal, LearnerStep* done);
  // Forward and backward of one; the loss, on its device.
  at::Tensor RunPass(Model* model, const Batch& batch);
  absl::Status DropBatches(BatchStream* batches, uint64_t step_of_deal);
  absl::Status OwnStep(const StepPlan& plan, double loss);
  absl::Status Exchange(const StepPlan& plan, LearnerStep* done);
  absl::Status WatchForNonFinite(uint64_t step, double loss, const StepResult& result);
  absl::Status CountOverflow(uint64_t step, double loss);
  absl::Status CountNonFinite(uint64_t step, double loss, const std::string& tensor);
  void UpdateLossScale(uint64_t step);
  // The step has no mean at all: every rank was out of data, or no gradient was finite. The same on
  // all ranks.
  bool IsEmpty(const StepResult& result) const;
  // The optimizer's step; null: no plan holds in it.
  void Optimize(double rate, const protocol::CompressionPlan* plan);
  // Puts what is tested and kept in the parameters' place, and the second time back: the average,
  // or within a round what the last exchange made.
  void SwapTested();
  TrainedState Trained();

  const job::JobSpec& spec_;
  const Logger& logger_;
  at::ScalarType type_ = at::kFloat;  // That the model computes in.
  std::shared_ptr<Model> model_;
  std::vector<std::shared_ptr<Model>> copies_;  // On the worker's other GPUs.
  std::unique_ptr<Replicas> replicas_;          // They; null: there are none.
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;  // None: the shards have it.
  double momentum_ = 0;                                 // Its, while no plan holds.
  std::optional<LossScale> loss_scale_;                 // With fp16.
  bool warned_of_scale_ = false;
  bool moved_ = false;      // Where weights are sent: a step was done since the last exchange.
  std::optional<Ema> ema_;  // With ema_decay.
  // Steps of which this rank held a bundle back: a gradient was not finite.
  uint64_t skipped_ = 0;
  uint32_t skipped_in_a_row_ = 0;
};

}  // namespace sluice::worker
