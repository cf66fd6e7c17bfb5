// Pipeline: one worker's part in a job, step by step, as a state machine. It tracks which bundles
// can be encoded, which may be sent and which are answered. Pure: callers pass events and receive
// effects as values. Not thread-safe. docs/protocol.md has the rules.
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
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "protocol/compression_plan.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/gradient_view.h"
#include "worker/core/replay_buffer.h"
#include "worker/core/result_parts.h"
#include "worker/core/session.h"
#include "worker/core/tensor_arrivals.h"

namespace sluice::worker {

struct PipelineOptions {
  protocol::TensorTable table;
  protocol::Layout layout;
  protocol::Sender sender;
  uint32_t world_size = 1;
  uint64_t first_step = 1;
  // If false, step 0, the parameter agreement, precedes first_step.
  bool parameters_agree = true;
  uint64_t buffer_sync_interval = protocol::kBufferSyncInterval;  // In steps.
  // If false, every worker runs at its own pace. A result then updates this worker's parameters to
  // the newest version. It is empty, or contains the frames of several publications or the
  // parameters. Buffers are exchanged in step 0 only, and codecs observe nothing.
  bool lockstep = true;
  // A step may close without this worker, whose late work then counts in a later step.
  bool quorum = false;
  // Workers join and leave. Results name the participants.
  bool elastic = false;
  // This worker joins a job that is ahead of it. The worker must skip every step until all shards
  // have received its part of one step in time. Until then, results may exclude the worker.
  bool late_joiner = false;
  // In a rack, the number of workers of the whole job, because a result covers all racks.
  // With 0 (no rack), a result covers the ranks in its record.
  uint32_t rack_of = 0;
  // Limit on the bytes of frames sent to a shard and not yet admitted. One bundle is always
  // allowed.
  uint64_t window_bytes = 16 << 20;
  // Bytes of frames of earlier steps, kept until Release to resend to a restarted shard. The oldest
  // steps are evicted first. 0 keeps none.
  uint64_t replay_bytes = 0;
  // Shard 0 makes plans, which change the codecs of `compression`.
  bool makes_plans = false;
  protocol::CompressionSpec compression{};
};

// Put `exchange` on the shard's stream, after everything that was put there before.
struct SendExchange {
  uint32_t shard = 0;
  std::shared_ptr<const protocol::ExchangeRequest> exchange;
};
// Call RetryDue(shard) after `delay`.
struct RetryLater {
  uint32_t shard = 0;
  absl::Duration delay;
};
// Every bundle has its result.
struct StepDone {
  uint64_t step = 0;
};
// For the log: the shard was restarted and lacks the steps from `from` on. This worker resends its
// contributions to the steps up to `to`.
struct ReplayBegun {
  uint32_t shard = 0;
  uint64_t from = 0;
  uint64_t to = 0;
};
// Final: the pipeline ignores every later event.
struct PipelineFailed {
  absl::Status status;
};
using PipelineEffect =
    std::variant<SendExchange, RetryLater, StepDone, ReplayBegun, PipelineFailed>;

// The frames published for a bundle's chunks, one string per chunk. Owned by the Pipeline; valid
// until its next step starts.
struct Published {
  absl::Span<const uint32_t> chunks;
  absl::Span<const std::string> frames;
};

class Pipeline {
 public:
  using Effects = std::vector<PipelineEffect>;

  explicit Pipeline(PipelineOptions options);

  // Sets the plans known before the first step, from Join or a checkpoint. Fails with
  // INVALID_ARGUMENT if a plan is malformed, none covers the first step, or the job makes no plans.
  absl::Status SetPlans(absl::Span<const protocol::CompressionPlan> plans);
  // Returns the plan in effect and the announced ones, for a checkpoint after the last step.
  std::vector<protocol::CompressionPlan> KnownPlans() const { return plans_.Copies(); }
  // Sets the learning rate from the next step on. Matters only if the shards do the updates.
  void SetRate(float rate) { rate_ = rate; }
  // Starts the next step. The previous step must be done.
  void StartStep();
  // The gradient, or the buffer's values, must not change until the step is done. Fails with
  // INVALID_ARGUMENT if there is no such tensor, its size differs, it was already submitted in this
  // step, or it is a buffer and buffers are not due. Fails with FAILED_PRECONDITION if a late
  // joiner has to skip the step.
  absl::Status TensorReady(uint32_t tensor, const GradientView& gradient);
  // Like Session::SetWeight, for the open step. The default is 1. Fails with INVALID_ARGUMENT if
  // there is no such bundle.
  absl::Status SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions);
  // Sends every bundle as a skip. Fails with FAILED_PRECONDITION after TensorReady or SkipStep in
  // this step.
  absl::Status SkipStep(Effects* effects);
  // Returns one task at a time: nullopt while a task is out or no bundle is complete.
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
  // Returns the oldest step from which all contributions are kept; 0 if none are kept.
  uint64_t replay_from() const;
  uint64_t durable_step() const { return durable_step_; }
  uint64_t named_checkpoint() const { return checkpoint_step_; }
  uint64_t kept_bytes() const { return kept_.bytes(); }
  // Bytes of frames sent and not yet admitted by their shards.
  uint64_t bytes_in_flight() const;

  // A step is open from StartStep until its StepDone.
  bool step_open() const { return open_; }
  // The open step, or the last one if none is open.
  uint64_t step() const { return step_; }
  uint64_t next_step() const { return next_step_; }
  // Returns whether step() (if `of_last`) or the next step exchanges buffers. All ranks agree on
  // this, because it follows from the job and from the results of earlier steps. Bundles of buffers
  // that are not due are sent as skips automatically.
  bool BuffersDue(bool of_last) const { return of_last ? buffers_due_ : AreBuffersDue(next_step_); }
  // The first tensor that the open step still needs.
  std::optional<uint32_t> MissingTensor() const;
  const absl::Status& status() const { return status_; }
  // Returns the tensors whose results have all arrived, and that it has not returned in this step.
  // Leaves out buffers that are not due.
  std::vector<ReadyTensor> TakeReady();
  // Returns whether all results of the tensor in the open or last step have arrived.
  bool IsReady(uint32_t tensor) const { return arrivals_.HasAll(tensor); }
  // Returns whether bundles of the open step are not encoded yet.
  bool encodes() const { return open_ && bundles_to_encode_ > 0; }
  // Returns the results of a tensor that is ready. Leaves out parts of a buffer with n = 0. Fails
  // with INVALID_ARGUMENT if there is no such tensor, its size differs, or it is a buffer and the
  // use is not kMean. An update needs parameters that are unchanged since the previous step.
  absl::StatusOr<std::vector<ResultPart>> Parts(uint32_t tensor, size_t elements,
                                                ResultUse use) const;
  // The remaining methods concern the last step, once it is done.
  StepResult Result() const;
  // Returns the publications, up to the last step, that were not part of a task. No later task will
  // contain them, so the caller must pass them to the encoder's Observe.
  std::vector<Published> TakePublished();
  const protocol::ClosingRecord& Record(uint32_t shard, uint32_t bundle) const;
  const protocol::Layout& layout() const { return options_.layout; }

 private:
  enum class Phase {
    kGathering,  // Gradients or their encoding are missing.
    kToSend,     // Encoded, and ready to be sent or resent.
    kSent,
    kAdmitted,
    kResolved,
  };
  struct BundleState {  // State of one bundle in a step.
    Phase phase = Phase::kGathering;
    uint32_t chunks_missing = 0;
    uint32_t repeats_asked = 0;
    uint32_t weight = 1;
    uint64_t bytes = 0;
    std::shared_ptr<const protocol::ExchangeRequest> exchange;  // Null once the result has arrived.
    uint32_t checksum = 0;                                      // Checksum of its frames.
    protocol::ClosingRecord record;
    bool exact = false;  // As in ExchangeReply.
    uint64_t staleness = 0;
    uint64_t open_step = 0;
    std::vector<std::string> results;
    // Published frames of the last step with results, kept until the next encoding.
    std::vector<std::string> published;
    bool taken = false;  // TakePublished has returned `published` or `results`.
  };
  // A step that is resent to a replaced shard before any later step is sent.
  struct Replay {
    // Nothing is sent until the shard has named the first step that it lacks.
    bool asking = false;
    uint64_t step = 0;  // 0 while nothing is resent.
    // By bundle. kResolved means that the bundle has an answer or need not be resent.
    std::vector<BundleState> flights;
    size_t unresolved = 0;
  };
  struct SentBundle {
    uint64_t step = 0;
    uint32_t bundle = 0;
  };
  struct ShardState {
    std::vector<BundleState> flights;  // By bundle.
    std::vector<uint64_t> versions;    // By bundle, from the last result; 0 if unknown.
    uint32_t next_encoding = 0;
    // In the step that is being sent, no bundle before this one waits to be sent.
    uint32_t next_send = 0;
    uint64_t bytes_in_flight = 0;
    bool paused = false;  // Sending is paused until RetryDue.
    Replay replay;
    std::optional<SentBundle> last_sent;  // The last bundle in step order; ignores resends.
    uint64_t asked_step = 0;              // The latest step passed to AskWhatIsLost.
    uint64_t told_plan = 0;               // Without lockstep: the last plan sent to the shard.
  };

  bool AreBuffersDue(uint64_t step) const;
  bool HasMean(uint32_t tensor) const;
  std::vector<uint32_t> WithoutMean() const;
  absl::Status CheckMean(uint32_t tensor, size_t elements) const;
  // Returns the chunk's frames in the last step: one or two, or none if n = 0.
  absl::Span<const std::byte> ResultOf(uint32_t chunk) const;
  // In a step without buffers, skips the buffers' bundles once all trained bundles are encoded.
  void SkipBuffers(Effects* effects);
  void SetExchange(uint32_t shard, uint32_t bundle, bool skip, std::vector<std::string> frames);
  // Returns the bundle of the step being resent, or of the open step if none is.
  BundleState& FlightToSend(ShardState* state, uint32_t bundle) const;
  // Returns the bundle that the answer to (step, bundle) concerns; null if no bundle waits for it.
  BundleState* FindFlight(ShardState* state, uint64_t step, uint32_t bundle) const;
  bool Unresolved(const ShardState& state) const;
  void SendMore(uint32_t shard, Effects* effects);
  void SendAgain(ShardState* state, uint32_t bundle, BundleState* flight) const;
  void PauseFor(uint32_t shard, uint32_t retry_after_ms, Effects* effects);
  absl::Status NotSent(uint32_t shard, const protocol::ExchangeReply& answer) const;
  void Resolve(uint32_t shard, protocol::ExchangeReply answer, Effects* effects);

  // pipeline_replay.cc
  void AskWhatIsLost(uint32_t shard, Effects* effects);
  void AskForLastSent(uint32_t shard, Effects* effects) const;
  absl::Status CannotAsk(uint32_t shard, const protocol::ExchangeReply& answer) const;
  // Returns true if the shard lacks earlier steps, or if the NEED answers an outdated request.
  bool HandleNeed(uint32_t shard, const protocol::ExchangeReply& answer, Effects* effects);
  void BeginReplay(uint32_t shard, uint64_t from, Effects* effects);
  void PrepareReplay(uint32_t shard, Effects* effects);
  std::shared_ptr<const protocol::ExchangeRequest> SentAgain(uint32_t shard,
                                                             const ReplayBuffer::Entry& kept) const;
  void ResolveRepeat(uint32_t shard, uint32_t bundle, Effects* effects);
  absl::Status CheckRepeat(uint32_t shard, const protocol::ExchangeReply& answer);
  void ReleaseKept();

  absl::Status RecordPlan(uint32_t shard, const protocol::ExchangeReply& answer);
  absl::Status CheckResult(uint32_t shard, const BundleState& flight,
                           const protocol::ExchangeReply& answer) const;
  absl::Status Fenced(uint32_t shard, const protocol::ExchangeReply& answer) const;
  absl::Status CheckSteps(uint64_t own_version, size_t chunks,
                          const protocol::ExchangeReply& answer) const;
  bool WasInTime() const;
  absl::Status CheckPlace(const protocol::ClosingRecord& record, size_t i) const;
  absl::Status CheckRecord(const BundleState& flight, const protocol::ExchangeReply& answer) const;
  void Fail(absl::Status status, Effects* effects);

  const PipelineOptions options_;
  std::vector<uint32_t> first_chunk_;  // By tensor; the last entry is the number of chunks.
  std::vector<uint32_t> position_;     // Position of each chunk in its bundle.
  const uint32_t trained_;  // Number of trained tensors; the tensors after them are buffers.
  uint64_t next_step_;
  float rate_ = 0;
  protocol::PlanHistory plans_;
  protocol::PlanHistory::Plan plan_;  // In effect in step_.
  uint64_t step_ = 0;
  bool open_ = false;
  bool skipped_ = false;
  bool catching_up_ = false;  // Some shard has not yet received a step of this worker in time.
  bool buffers_due_ = false;  // In step_.
  bool encoding_ = false;     // A task is out.
  size_t bundles_ = 0;        // In all shards.
  size_t trained_bundles_ = 0;
  size_t bundles_to_encode_ = 0;
  size_t bundles_unresolved_ = 0;
  std::vector<GradientView> gradients_;  // By tensor, of the open step.
  std::vector<bool> ready_;              // By tensor.
  TensorArrivals arrivals_;              // Results of the open or last step.
  std::vector<ShardState> shards_;
  ReplayBuffer kept_;
  uint64_t durable_step_ = 0;     // From the last Release.
  uint64_t checkpoint_step_ = 0;  // The last named checkpoint; 0 if none.
  uint32_t bundles_skipped_here_ = 0;
  std::string first_skipped_tensor_;
  std::string first_skipped_buffer_;
  absl::Status status_;
};

}  // namespace sluice::worker
