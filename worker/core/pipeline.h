// SPDX-License-Identifier: Apache-2.0
// Pipeline: one worker's part in a job, step by step, as a state machine. It tracks which bundles
// can be encoded and which have results, and composes the contributions. A ShardSender for each
// shard sends them. The pipeline is pure: callers pass events and receive effects as values. It is
// not thread-safe. docs/protocol.md has the rules.
//
// In each step call StartStep, then either TensorReady for every tensor (buffers only when they are
// due) or SkipStep once. While NextEncoding returns a task, encode it and pass the result to
// Encoded. The pipeline keeps encoded bytes until their result arrives, so that a retry repeats the
// same bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/control_spec.h"
#include "protocol/compression_plan.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/chunk_index.h"
#include "worker/core/gradient_view.h"
#include "worker/core/late_work.h"
#include "worker/core/pipeline_effect.h"
#include "worker/core/pipeline_options.h"
#include "worker/core/replay_buffer.h"
#include "worker/core/result_check.h"
#include "worker/core/result_parts.h"
#include "worker/core/session.h"
#include "worker/core/shard_sender.h"
#include "worker/core/step_inputs.h"
#include "worker/core/step_results.h"

namespace sluice::worker {

class Pipeline {
 public:
  using Effects = PipelineEffects;

  explicit Pipeline(PipelineOptions options);
  // The parts of a pipeline refer to its options, so a copy would refer to those of the original.
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Sets the plans known before the first step, from Join or a checkpoint. Fails with
  // INVALID_ARGUMENT if a plan is malformed, none covers the first step, or the job makes no plans.
  absl::Status SetPlans(absl::Span<const protocol::CompressionPlan> plans);
  // Returns the plan in effect and the announced ones, for a checkpoint after the last step.
  std::vector<protocol::CompressionPlan> KnownPlans() const { return plans_.Copies(); }
  // Sets the learning rate from the next step on. It matters only if the shards do the updates.
  void SetRate(float rate) { rate_ = rate; }
  // Sets what the contributions of the next step and of all later ones are made from.
  void SetWork(const protocol::Work& work) { work_ = work; }
  // Limits, from the next step on, what a shard gets ahead of its results: see
  // ShardSender::LimitLead. Has no effect if results do not wait for all workers of a rack, or also
  // wait for other racks, over links that this worker cannot measure.
  void LimitLead(double share);
  // Starts the next step. The previous step must be done.
  void StartStep();
  // The gradient, or the buffer's values, must not change until the step is done. Fails with
  // INVALID_ARGUMENT if there is no such tensor, its size differs, it was already submitted in this
  // step, or it is a buffer and buffers are not due. Fails with FAILED_PRECONDITION if a late
  // joiner has to skip the step.
  absl::Status TensorReady(uint32_t tensor, const GradientView& gradient);
  // Does for the open step what RelaySession::SetWeight describes. The default is 1. Fails with
  // INVALID_ARGUMENT if there is no such bundle.
  absl::Status SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions);
  // Sends every bundle as a skip. Fails with FAILED_PRECONDITION after TensorReady or SkipStep in
  // this step.
  absl::Status SkipStep(Effects* effects);
  // Returns one task at a time, and nullopt while a task is out or no bundle is complete.
  std::optional<EncodeTask> NextEncoding();
  void Encoded(EncodedBundle encoded, Effects* effects);
  // Ignores repeated answers, and results that an earlier holder of this rank requested. An invalid
  // answer or a refusal fails the pipeline. The failure is a RollbackError if the job has rolled
  // back or this worker must replay steps, and DATA_LOSS if a result differs from one received
  // before.
  void Answer(uint32_t shard, protocol::ExchangeReply answer, Effects* effects);
  // Call this when the shard has a new stream. All requests on the old stream may be lost. If
  // replay_bytes is not 0, the pipeline always sends something, so that the answer shows whether
  // another process serves the shard.
  void StreamReset(uint32_t shard, Effects* effects);
  void RetryDue(uint32_t shard, Effects* effects);
  // Call this when another process serves the shard, before passing on the answer that showed the
  // change. Contributions that the old process admitted may be lost. A later NEED names the step
  // from which contributions are missing. The pipeline resends them unchanged, step by step; their
  // results must equal the earlier ones.
  void ShardReplaced(uint32_t shard, Effects* effects);
  // A complete checkpoint exists after `durable_step`. No process will request this step or earlier
  // ones.
  void Release(uint64_t durable_step);
  // Returns the oldest step from which all contributions are kept, or 0 if none are kept.
  uint64_t replay_from() const { return kept_.from(); }
  uint64_t durable_step() const { return durable_step_; }
  uint64_t named_checkpoint() const { return checkpoint_step_; }
  uint64_t kept_bytes() const { return kept_.bytes(); }
  // Returns the bytes of frames that were sent and that the shards have not admitted yet.
  uint64_t bytes_in_flight() const;

  // A step is open from StartStep until its StepDone.
  bool step_open() const { return open_; }
  // Returns the open step, or the last one if none is open.
  uint64_t step() const { return step_; }
  uint64_t next_step() const { return next_step_; }
  // Returns whether step() (if `of_last`) or the next step exchanges buffers. All ranks agree on
  // this, because it follows from the job and from the results of earlier steps. Bundles of buffers
  // that are not due are sent as skips automatically.
  bool BuffersDue(bool of_last) const {
    return of_last ? inputs_.buffers_due() : AreBuffersDue(next_step_);
  }
  // Returns the parts of the trained tensors that step() (if `of_last`) or the next step exchanges.
  std::vector<protocol::TensorPart> PartsDue(bool of_last) const {
    return protocol::PartsDue(options_.layout, trained_, of_last ? step_ : next_step_);
  }
  // Returns the first tensor that the open step still needs.
  std::optional<uint32_t> MissingTensor() const;
  const absl::Status& status() const { return status_; }
  // Returns the tensors whose results have all arrived, and that it has not returned in this step.
  // Leaves out buffers that are not due.
  std::vector<ReadyTensor> TakeReady() { return results_.TakeReady(inputs_.buffers_due()); }
  // Returns whether all results of the tensor in the open or last step have arrived.
  bool IsReady(uint32_t tensor) const { return results_.HasAll(tensor); }
  // Returns whether bundles of the open step are not encoded yet.
  bool encodes() const { return open_ && inputs_.to_encode() > 0; }
  // Returns the results of a tensor that is ready. Leaves out parts of a buffer with n = 0. Fails
  // with INVALID_ARGUMENT if there is no such tensor, its size differs, or it is a buffer and the
  // use is not kMean. An update needs parameters that are unchanged since the previous step.
  absl::StatusOr<std::vector<ResultPart>> Parts(uint32_t tensor, size_t elements,
                                                ResultUse use) const;
  // The remaining methods concern the last step, once it is done.
  // As RelaySession::AnnouncedPlan.
  protocol::PlanHistory::Plan AnnouncedPlan() const {
    if (!options_.exchange.in_lockstep()) return nullptr;  // Plans take effect on arrival.
    return plans_.Beginning(step_ + job::kPlanDelay);
  }
  StepResult Result() const;
  // Returns the publications, up to the last step, that were not part of a task. No later task will
  // contain them, so the caller must pass them to the encoder's Observe.
  std::vector<Published> TakePublished();
  // The same for late contributions, for the encoder's Settle.
  LateParts TakeLate() { return late_.TakeAll(); }
  const protocol::ClosingRecord& Record(uint32_t shard, uint32_t bundle) const {
    return results_.Record(shard, bundle);
  }
  const protocol::Layout& layout() const { return options_.layout; }

 private:
  bool AreBuffersDue(uint64_t step) const;
  // Skips the bundles that this step does not exchange.
  void SkipNotDue(Effects* effects);
  // Makes the contribution to a bundle of the open step and passes it to the shard's sender.
  void Send(uint32_t shard, uint32_t bundle, bool skip, std::vector<std::string> frames,
            Effects* effects);
  // Takes the first result of a bundle of the open step.
  void Resolve(uint32_t shard, protocol::ExchangeReply answer, Effects* effects);
  absl::Status CheckResult(uint32_t shard, const protocol::ExchangeReply& answer);
  absl::Status RecordPlan(uint32_t shard, const protocol::ExchangeReply& answer);
  absl::Status Fenced(uint32_t shard, const protocol::ExchangeReply& answer) const;
  void ReleaseKept();
  void Fail(absl::Status status, Effects* effects);

  const PipelineOptions options_;
  const uint32_t trained_;  // The number of trained tensors; the tensors after them are buffers.
  const ChunkIndex index_;
  const ResultCheck check_;
  // Inputs and results belong to the open step, or to the last one if none is open.
  StepInputs inputs_;
  StepResults results_;
  LateWork late_;
  uint64_t next_step_;
  float rate_ = 0;
  protocol::Work work_{};
  protocol::PlanHistory plans_;
  protocol::PlanHistory::Plan plan_;  // It is in effect in step_.
  uint64_t step_ = 0;
  bool open_ = false;
  bool catching_up_ = false;  // Some shard has not yet received a step of this worker in time.
  size_t bundles_ = 0;        // The number of bundles in all shards.
  size_t bundles_unresolved_ = 0;
  ReplayBuffer kept_;
  std::vector<ShardSender> senders_;  // By shard. They refer to options_ and kept_.
  // Without lockstep, this has the number of the last plan that each shard was sent.
  std::vector<uint64_t> told_plans_;
  uint64_t durable_step_ = 0;     // The latest step that Release has named.
  uint64_t checkpoint_step_ = 0;  // The latest named checkpoint; 0 if none is named.
  absl::Status status_;
};

}  // namespace sluice::worker
