// DataParallel: a LibTorch model that trains together with the other workers of a job, through a
// Session.
//
//   auto parallel = DataParallel::Create(*model, &session);   // once, then Join
//   loss.backward();                                          // gradients leave while it runs
//   parallel->Synchronize();                                  // .grad now holds the mean over all
//   workers optimizer.step();
//
// The module's float32 buffers (BatchNorm's running statistics) are averaged too, in the steps that
// Session::BuffersDue says: Synchronize and Skip put the mean into them. In between, and all of
// whole numbers, they are each rank's own.
//
// The module may be on a GPU: gradients are encoded there if the session can, and come back there.
//
// Parameters may be bfloat16 or float16: each then has a float32 master, which parameters(), .grad
// and hashes are about. Give the optimizer parameters() instead of the module's, and after its step
// call CopyMastersToModule.
//
// Which parameters are trained is what requires_grad says at Create: the job exchanges those. One
// that is unfrozen later is an error once it has a gradient, as every rank would train its own.
//
// Either form of zero_grad works; zero_grad(/*set_to_none=*/false) saves allocations.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "worker/core/session.h"
#include "worker/torch/averaged_buffers.h"
#include "worker/torch/named_tensors.h"
#include "worker/torch/replicas.h"
#include "worker/torch/tensor_port.h"
#include "worker/torch/trainable_parameters.h"

namespace sluice::worker {

struct DataParallelOptions {
  // Backward passes per step, at most. What a step did accumulate is averaged over its passes, and
  // a gradient leaves during the last one.
  uint32_t accumulation_steps = 1;
  // Names of buffers that are not averaged: every rank keeps its own. Equal on all ranks.
  std::vector<std::string> local_buffers{};
  // float32 values by name, with which masters of shorter parameters begin, so that nothing is
  // rounded. Others begin with the parameter's own.
  NamedTensors master_values{};
  // Nothing leaves before Synchronize, which first looks at all gradients: if one is not finite,
  // this rank skips the step as a whole (see overflowed).
  bool atomic_step = false;
  // The job's shards do the updates (job/job_spec.h, ShardOptimizer): Synchronize and Skip bring
  // parameters() to what these have published, and leave no gradient. Nobody else changes
  // parameters() then; the rate goes by way of Session::SetRate.
  bool shards_update = false;
  // With shards_update: an optimizer here does steps of its own, after TakeGradients, and
  // Synchronize sends how far these have brought parameters() since the exchange before.
  bool sends_weights = false;
  // Copies of the module that run passes of a step, too; they outlive the DataParallel.
  Replicas* replicas = nullptr;
};

// Used from the thread that trains; the hooks it installs run wherever backward runs. Holds the
// parameters, and must not outlive the session. No exception of LibTorch leaves it.
class DataParallel {
 public:
  // Errors: those of FindTrainableParameters and FindAveragedBuffers; a parameter that has a
  // post-accumulate hook already.
  static absl::StatusOr<std::unique_ptr<DataParallel>> Create(
      const torch::nn::Module& module, Session* session, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Waits for all ranks. When it returns, every rank holds the same parameters and averaged
  // buffers: rank 0's where they differed.
  absl::StatusOr<JoinInfo> Join();

  // After the step's backward passes: submits what no hook has submitted (zeros for a parameter
  // that was not used), waits, and puts the mean into every .grad of parameters(). Where there is
  // none (StepResult::without_mean) it unsets .grad, so that LibTorch's optimizers pass the
  // parameter over: no momentum or weight decay moves it. Errors: those of the session; a sparse
  // gradient; no backward pass (FAILED_PRECONDITION, Skip is for that) or more than
  // `accumulation_steps` of them; a gradient of a parameter that was frozen at Create.
  absl::StatusOr<StepResult> Synchronize();

  // Instead of backward and Synchronize in a step without data; .grad gets the mean of the others,
  // as with Synchronize.
  // With sends_weights, what parameters() have moved is dropped.
  absl::StatusOr<StepResult> Skip();

  // With sends_weights, after a step's backward passes: puts this rank's own gradient, the mean
  // over the passes, into every .grad of parameters(). If it is not finite, overflowed() names a
  // parameter, and no optimizer should take it. Errors: those of Synchronize that are not the
  // session's.
  absl::Status TakeGradients();

  // With replicas: so many of the step's passes have run on them so far. To be said before the
  // module's own pass which, together with these, is the step's last.
  void CountPassesOfReplicas(uint32_t passes);

  // What gradients are multiplied by on their way out, in float32, from the next step on: 1 / loss
  // scale.
  void ScaleGradients(float factor);
  // With atomic_step: the parameter for whose gradient the last Synchronize skipped the step; with
  // sends_weights, one for which the last TakeGradients found it. Empty: none.
  const std::string& overflowed() const { return overflowed_; }

  // Rounds masters into the parameters that they stand for; does nothing where there are none.
  void CopyMastersToModule();
  // To be called once parameters() have been set to those of a checkpoint, which all ranks have.
  void ParametersRestored();
  // With sends_weights: exchanges parameters() and what the last exchange made of them, and the
  // second time all is as it was. Does nothing else.
  void SwapPublished();

  // 32 bytes, as the session takes it. Without buffers, which differ between ranks.
  std::string ParametersSha256() const { return Sha256(parameters_.masters); }
  // `module`'s parameters and buffers by name, with masters in place of what they stand for.
  NamedTensors StateDict(const torch::nn::Module& module) const;
  // Parameters, then averaged buffers.
  const protocol::TensorTable& table() const { return table_; }
  // float32: what an optimizer should update.
  const std::vector<at::Tensor>& parameters() const { return parameters_.masters; }

 private:
  // What a step has done to one tensor so far.
  struct Slot {
    uint32_t passes = 0;
    bool submitted = false;
    bool with_replicas = false;  // Theirs are added.
    at::Tensor gradient;         // Keeps the submitted span alive.
  };

  DataParallel(TrainableParameters parameters, AveragedBuffers buffers, Session* session,
               const DataParallelOptions& options);
  absl::Status InstallHooks();
  void OnGradient(uint32_t tensor);
  absl::Status SubmitLocked(uint32_t tensor, uint32_t passes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LaySlotLocked(uint32_t tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginStepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Passes of the step that is open.
  absl::StatusOr<uint32_t> PassesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FindOverflow();
  absl::Status SubmitRest();
  absl::Status SubmitBuffers();
  absl::Status ApplyBuffers();
  // In the table.
  uint32_t IndexOfBuffer(size_t i) const {
    return static_cast<uint32_t>(parameters_.tensors.size() + i);
  }
  absl::StatusOr<StepResult> WaitAndApply();
  absl::Status SubmitGradients();
  absl::Status SubmitMoved();
  absl::Status TakeOwnGradients();
  absl::Status TakeMeans(absl::Span<const uint32_t> without_mean);
  absl::Status CheckFrozen() const;
  absl::Status TakeUpdates();
  absl::Status AgreeOn(const std::vector<at::Tensor>& tensors);
  void NoteOverflow(const std::vector<at::Tensor>& gradients);
  bool HasMaster(size_t i) const { return !parameters_.masters[i].is_same(parameters_.tensors[i]); }

  const TrainableParameters parameters_;
  const AveragedBuffers buffers_;
  const protocol::TensorTable table_;
  Session* const session_;
  const DataParallelOptions options_;
  TensorPort port_;  // While backward runs, its hooks'; else the caller's.
  // With sends_weights: the parameters that all ranks had after the last exchange.
  std::vector<at::Tensor> published_;
  size_t hooks_installed_ = 0;
  std::string overflowed_;

  Mutex mutex_;
  float gradient_scale_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  uint32_t passes_of_replicas_ ABSL_GUARDED_BY(mutex_) = 0;  // Of the step that is open.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // Of a hook: it has nobody to return it to.
};

}  // namespace sluice::worker
