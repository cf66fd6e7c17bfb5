// SPDX-License-Identifier: Apache-2.0
// DataParallel: trains a LibTorch model together with the other workers of a job, through a
// Session.
//
//   auto parallel = DataParallel::Join(*model, &client);  // once
//   loss.backward();                                      // gradients leave while it runs
//   parallel->Synchronize();                              // .grad now holds the mean
//   optimizer.step();
//
// The module's float32 buffers (BatchNorm's running statistics) are averaged too, in the steps for
// which Session::BuffersDue returns true: Synchronize and Skip write the mean into them. In other
// steps each rank keeps its own values. Buffers of whole numbers are never averaged.
//
// The module may be on a GPU. If the session supports it, gradients are encoded on the GPU and
// means are applied there.
//
// Parameters may be bfloat16 or float16. Each of these has a float32 master, and parameters(),
// .grad and hashes refer to the masters. Pass parameters() to the optimizer instead of the module's
// parameters, and call CopyMastersToModule after its step.
//
// The job exchanges the parameters whose requires_grad is true at Join. A parameter that is
// unfrozen later causes an error once it has a gradient, because every rank would train it
// separately.
//
// Both forms of zero_grad work; zero_grad(/*set_to_none=*/false) saves allocations.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "worker/core/job_client.h"
#include "worker/torch/averaged_buffers.h"
#include "worker/torch/module_replicas.h"
#include "worker/torch/named_tensors.h"
#include "worker/torch/streamed_changes.h"
#include "worker/torch/tensor_port.h"
#include "worker/torch/trainable_parameters.h"

namespace sluice::worker {

struct DataParallelOptions {
  // Maximum number of backward passes per step. A step's gradient is the mean over its actual
  // passes, and it is submitted during the last pass.
  uint32_t accumulation_steps = 1;
  // Names (equal on all ranks) of buffers that are not averaged: each rank keeps its own values.
  std::vector<std::string> local_buffers{};
  // Initial float32 values by name for the masters of 16-bit parameters, so that nothing is
  // rounded. Other masters start with the parameter's own values.
  NamedTensors master_values{};
  // Submits no gradient before Synchronize, which first checks all gradients. If one is not finite,
  // this rank skips the whole step (see overflowed).
  bool atomic_step = false;
  // The job's shards do the updates (job/job_spec.h, ShardOptimizer). Synchronize and Skip bring
  // parameters() to the published version and leave no gradient. The caller must not change
  // parameters(), and sets the learning rate with Session::SetRate.
  bool shards_update = false;
  // With shards_update: a local optimizer does its own steps after ReadGradients, and Synchronize
  // sends the change of parameters() since the previous exchange.
  bool sends_weights = false;
  // With sends_weights: BeginExchange and EndExchange take the place of Synchronize and Skip, and
  // training may go on between them.
  bool streams = false;
  double merge_alpha = 0;  // As in StreamedChanges.
  // Copies of the module that also run passes of a step. They must outlive the DataParallel.
  ModuleReplicas* replicas = nullptr;
};

// Used from the training thread; its hooks run on the threads that run backward. Holds the
// parameters. Converts all exceptions of LibTorch to errors.
class DataParallel {
 public:
  // Joins the job with the tensors of `module`, and waits for all ranks. On return, every rank has
  // the same parameters and averaged buffers. If they differed before, all ranks get rank 0's
  // values. `client` must outlive the result. Before it joins, returns the errors of
  // FindTrainableParameters and FindAveragedBuffers, and fails if a parameter already has a
  // post-accumulate hook.
  static absl::StatusOr<std::unique_ptr<DataParallel>> Join(
      const torch::nn::Module& module, JobClient* client, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  const JoinInfo& joined() const { return joined_; }
  Session* session() const { return session_; }

  // Call after the step's backward passes. Submits the gradients that no hook has submitted (zeros
  // for an unused parameter), waits, and writes the mean into .grad of each of parameters().
  // Without a mean (StepResult::without_mean) it unsets .grad, so that LibTorch's optimizers ignore
  // the parameter, and neither momentum nor weight decay changes it. Fails if the session fails, a
  // gradient is sparse, there was no backward pass (FAILED_PRECONDITION; use Skip) or more than
  // `accumulation_steps` of them, or a parameter that was frozen at Join has a gradient.
  absl::StatusOr<StepResult> Synchronize();

  // Replaces backward and Synchronize in a step without data; .grad gets the mean of the other
  // ranks, as in Synchronize. With sends_weights, discards the change of parameters() since the
  // last exchange.
  absl::StatusOr<StepResult> Skip();

  // With streams: sends the change of the fragment that is due. With `skip`, this rank has no part
  // in the exchange.
  absl::Status BeginExchange(bool skip);
  // Waits for the result of the exchange that began, and adopts it. Other parameters stay.
  absl::StatusOr<StepResult> EndExchange();

  // With sends_weights, call after a step's backward passes. Writes this rank's own gradient, the
  // mean over the passes, into .grad of each of parameters(). If a gradient is not finite,
  // overflowed() names its parameter, and the optimizer should not use the gradients. Fails as
  // Synchronize does, except for errors of the session.
  absl::Status ReadGradients();

  // With replicas: sets the number of this step's passes that the replicas have run so far. Call it
  // before the module's own last pass of the step.
  void CountPassesOfReplicas(uint32_t passes);

  // Sets the factor for outgoing gradients, in float32, from the next step on: 1 / loss scale.
  void ScaleGradients(float factor);
  // With atomic_step: the parameter whose gradient made the last Synchronize skip the step. With
  // sends_weights: a parameter whose gradient was not finite in the last ReadGradients. Empty if
  // there was none.
  const std::string& overflowed() const { return overflowed_; }

  // Rounds masters into their 16-bit parameters. Does nothing without masters.
  void CopyMastersToModule();
  // Call after parameters() have been restored from a checkpoint, which all ranks share. With
  // streams, published() must have been restored too.
  void ParametersRestored();
  // With streams: sets parameters() to those that all ranks share.
  void AdoptPublished();
  // With streams: the parameters that all ranks share. Otherwise empty.
  std::vector<at::Tensor> published() const {
    return options_.streams ? published_ : std::vector<at::Tensor>{};
  }
  // With sends_weights: swaps parameters() with the parameters of the last exchange. A second call
  // restores both. Does nothing otherwise.
  void SwapPublished();

  // Gives followers the parameters after `step`, if they want them (Session::WantsWeights).
  void PublishWeights(uint64_t step, bool is_last);

  // Returns 32 bytes in the session's format, of the parameters that all ranks share. Excludes
  // buffers, which differ between ranks.
  std::string ParametersSha256() const {
    return Sha256(options_.streams ? published_ : parameters_.masters);
  }
  // Returns `module`'s parameters and buffers by name, with masters in place of 16-bit parameters.
  NamedTensors StateDict(const torch::nn::Module& module) const;
  // Returns the table of the parameters, followed by the averaged buffers.
  const protocol::TensorTable& table() const { return table_; }
  // The float32 tensors that an optimizer should update.
  const std::vector<at::Tensor>& parameters() const { return parameters_.masters; }

 private:
  // State of one tensor in the open step.
  struct Slot {
    uint32_t passes = 0;
    bool submitted = false;
    bool with_replicas = false;  // Includes the gradients of the replicas.
    at::Tensor gradient;         // Keeps the submitted span valid.
  };

  DataParallel(TrainableParameters parameters, AveragedBuffers buffers, protocol::TensorTable table,
               JoinedJob joined, const DataParallelOptions& options);
  void InstallHooks();
  void OnGradient(uint32_t tensor);
  absl::Status SubmitLocked(uint32_t tensor, uint32_t passes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LaySlotLocked(uint32_t tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginStepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the number of passes of the open step.
  absl::StatusOr<uint32_t> PassesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FindOverflow();
  absl::Status SubmitRest();
  absl::Status SubmitBuffers();
  absl::Status ApplyBuffers();
  // Returns the index in the table.
  uint32_t IndexOfBuffer(size_t i) const {
    return static_cast<uint32_t>(parameters_.tensors.size() + i);
  }
  absl::StatusOr<StepResult> WaitAndApply();
  absl::Status SubmitGradients();
  absl::Status SubmitMoved();
  absl::Status ReadOwnGradients();
  // Returns the gradient of master `i`, which the mean replaces.
  absl::StatusOr<at::Tensor> LayMean(size_t i);
  absl::Status WriteMean(uint32_t tensor);
  // Writes the means that arrive before the step is over.
  absl::Status WriteMeansAsTheyArrive(std::vector<bool>* written);
  // Writes the rest.
  absl::Status WriteMeans(const std::vector<bool>& written);
  absl::Status CheckFrozen() const;
  absl::Status ApplyUpdates();
  void Publish();
  absl::Status AgreeOn(const std::vector<at::Tensor>& tensors);
  void NoteOverflow(const std::vector<at::Tensor>& gradients);
  bool HasMaster(size_t i) const { return !parameters_.masters[i].is_same(parameters_.tensors[i]); }

  const TrainableParameters parameters_;
  const AveragedBuffers buffers_;
  const protocol::TensorTable table_;
  const JoinInfo joined_;
  Session* const session_;
  const DataParallelOptions options_;
  TensorPort port_;  // Used by the hooks during backward, otherwise by the caller.
  // With sends_weights: the parameters that all ranks had after the last exchange.
  std::vector<at::Tensor> published_;
  std::optional<StreamedChanges> changes_;  // Only with streams.
  std::string overflowed_;

  Mutex mutex_;
  float gradient_scale_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  uint32_t passes_of_replicas_ ABSL_GUARDED_BY(mutex_) = 0;  // Passes in the open step.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // First error of a hook, which cannot return it.
};

}  // namespace sluice::worker
