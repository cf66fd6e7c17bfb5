// SPDX-License-Identifier: Apache-2.0
// StepInputs: the tensors that a worker submits in its open step, and the order in which their
// bundles are encoded. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/chunk_index.h"
#include "worker/core/gradient_view.h"
#include "worker/core/pipeline_options.h"
#include "worker/core/session.h"

namespace sluice::worker {

class StepInputs {
 public:
  // The options and the index must outlive the inputs. Tensors from `trained` on are buffers.
  StepInputs(const PipelineOptions& options, const ChunkIndex& index, uint32_t trained);

  // Starts a step in which nothing is submitted yet.
  void StartStep(uint64_t step, bool buffers_due);
  // As Pipeline::TensorReady.
  absl::Status Submit(uint32_t tensor, const GradientView& gradient);
  // Fails with INVALID_ARGUMENT if there is no such bundle.
  absl::Status SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions);
  // Skips the step. Fails with FAILED_PRECONDITION after Submit or Skip.
  absl::Status Skip();

  // Returns the next bundle with all of its gradients, without frames to observe and without a
  // plan: nullopt while a task is out or no bundle is complete.
  std::optional<EncodeTask> NextTask();
  // Records that the task which is out was encoded.
  void Encoded(const EncodedBundle& encoded);
  // Records that the task which is out failed or no longer matters.
  void DropTask() { encoding_ = false; }
  // Returns the bundles of the shard that this step does not exchange: empty ones, those of other
  // fragments, and those of buffers that are not due.
  std::vector<uint32_t> NotDue(uint32_t shard) const;

  bool task_out() const { return encoding_; }
  bool skipped() const { return skipped_; }
  bool buffers_due() const { return buffers_due_; }
  // Returns whether the step exchanges the bundle.
  bool IsDue(const protocol::Bundle& bundle) const;
  uint32_t weight(uint32_t shard, uint32_t bundle) const { return shards_[shard].weight[bundle]; }
  // Returns the number of bundles that are still to be encoded in this step.
  size_t to_encode() const { return to_encode_; }
  // Returns the first tensor that the step still needs.
  std::optional<uint32_t> MissingTensor() const;
  // Writes which bundles and tensors of this worker were skipped because they are not finite.
  void AddSkippedTo(StepResult* result) const;

 private:
  struct ShardInputs {
    std::vector<uint32_t> chunks_missing;  // By bundle.
    std::vector<uint32_t> weight;          // By bundle.
    uint32_t next = 0;                     // The next bundle that is due and not encoded.
  };

  // Moves on to the shard's next bundle that is due.
  void SkipToDue(uint32_t shard);

  const PipelineOptions& options_;
  const ChunkIndex& index_;
  const uint32_t trained_;
  uint64_t step_ = 0;
  bool buffers_due_ = false;
  bool skipped_ = false;
  bool encoding_ = false;                // A task is out.
  size_t to_encode_ = 0;                 // Bundles.
  std::vector<GradientView> gradients_;  // By tensor.
  std::vector<bool> ready_;              // By tensor.
  std::vector<bool> due_;                // By tensor: a bundle that is due has a part of it.
  std::vector<ShardInputs> shards_;
  uint32_t bundles_skipped_ = 0;
  std::string first_skipped_tensor_;
  std::string first_skipped_buffer_;
};

}  // namespace sluice::worker
