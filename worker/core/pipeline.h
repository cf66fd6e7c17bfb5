// Pipeline: one worker's part in a job, step by step, as a state machine: which bundles can be
// encoded, which may be sent, which are answered. Pure: events come in, effects go out as values.
// Not thread-safe. docs/protocol.md has the rules.
//
// A step: StartStep, then TensorReady for every tensor (buffers only where they are due) or
// SkipStep once; while NextEncoding gives a task, encode it and hand it back through Encoded. What
// was encoded is kept as bytes until its result is there, and repeated as it was.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "compress/device_encoder.h"
#include "job/job_spec.h"
#include "protocol/compression_plan.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/gradient_view.h"
#include "worker/core/replay_buffer.h"
#include "worker/core/session.h"

namespace sluice::worker {

struct PipelineOptions {
  protocol::TensorTable table;
  protocol::Layout layout;
  protocol::Sender sender;
  uint32_t world_size = 1;
  uint64_t first_step = 1;
  bool parameters_agree = true;  // False: step 0, the parameter agreement, comes before first_step.
  uint64_t average_buffers_every = job::kAverageBuffersEvery;  // Steps.
  // False: every worker has its own pace. A result is what brings this one's parameters to the
  // newest that there are: nothing, frames of several publications, or the parameters themselves.
  // Buffers are exchanged in step 0 alone, and codecs observe nothing.
  bool lockstep = true;
  // A step may close without this worker, which was late: its work is in a later one then.
  bool quorum = false;
  // Workers come and go: results tell who takes part.
  bool elastic = false;
  // It joins others who are further. Every step is to be skipped until all shards had its part of
  // one in time; so far a result may be of others alone.
  bool learner = false;
  // Of a rack: results come from a job above, of so many workers; 0: they are of those included.
  uint32_t rack_of = 0;
  uint64_t window_bytes =
      16 << 20;  // Of frames sent to a shard and not yet admitted; one bundle may always be.
  // Of frames of earlier steps, kept until Release so that a shard that was started again can be
  // given them; the oldest steps go first. 0: none are kept.
  uint64_t replay_bytes = 0;
  // Shard 0 makes plans: how they may change the codecs of `compression`.
  bool makes_plans = false;
  protocol::CompressionSpec compression{};
};

// Put `exchange` on the shard's stream, after what was put there before.
struct SendExchange {
  uint32_t shard = 0;
  std::shared_ptr<const protocol::Exchange> exchange;
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
// For the log: the shard was started again and lacks the steps from `from` on; this worker had sent
// it some of each up to `to` and sends them again.
struct ReplayBegun {
  uint32_t shard = 0;
  uint64_t from = 0;
  uint64_t to = 0;
};
// Final: every later event is ignored.
struct PipelineFailed {
  absl::Status status;
};
using PipelineEffect =
    std::variant<SendExchange, RetryLater, StepDone, ReplayBegun, PipelineFailed>;

// What was published for a bundle's chunks, one string each. Owned by the Pipeline, until its next
// step starts.
struct Published {
  absl::Span<const uint32_t> chunks;
  absl::Span<const std::string> frames;
};

class Pipeline {
 public:
  using Effects = std::vector<PipelineEffect>;

  explicit Pipeline(PipelineOptions options);

  // What is known of plans before the first step: as Join or a checkpoint tells it.
  // INVALID_ARGUMENT: they cannot be, none holds in the first step, or the job makes none.
  absl::Status SetPlans(absl::Span<const protocol::CompressionPlan> plans);
  // The one that holds, and those that were announced: for a checkpoint after the last step.
  std::vector<protocol::CompressionPlan> KnownPlans() const { return plans_.Copies(); }
  // Of the updates of all steps from the next on, where the shards do them.
  void SetRate(float rate) { rate_ = rate; }
  // The step after the one before, which must be done.
  void StartStep();
  // The gradient, or a buffer's values, must stay as it is until the step is done.
  // INVALID_ARGUMENT: no such tensor, another size, the tensor came before in this step, or it is a
  // buffer and buffers are not due. FAILED_PRECONDITION: a learner has to skip the step.
  absl::Status TensorReady(uint32_t tensor, const GradientView& gradient);
  // As Session::SetWeight, of the open step; 1 where it is not called. INVALID_ARGUMENT: no such
  // bundle.
  absl::Status SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions);
  // Sends every bundle as a skip. FAILED_PRECONDITION after TensorReady or SkipStep in this step.
  absl::Status SkipStep(Effects* effects);
  // One task at a time; none while one is out or no bundle is whole.
  std::optional<EncodeTask> NextEncoding();
  void Encoded(EncodedBundle encoded, Effects* effects);
  // Repeated answers change nothing, nor do results that were asked for by whoever held this rank
  // before. One that is wrong, or refuses, fails the pipeline; with a RollbackError if the job has
  // gone back meanwhile or this worker must go through steps anew; with DATA_LOSS if it is another
  // result than the one that was there before.
  void Answer(uint32_t shard, protocol::ExchangeAnswer answer, Effects* effects);
  // The shard's stream is a new one: whatever went over the old one may be lost. Where replay_bytes
  // is not 0 something is always sent, so that the answer shows whether the shard is another.
  void StreamReset(uint32_t shard, Effects* effects);
  void RetryDue(uint32_t shard, Effects* effects);
  // Another process answers for the shard: what the one before it had admitted may be lost. Comes
  // before the Answer that showed it. A later NEED says from which step on it lacks contributions:
  // they are sent again as they were, step by step, and their results must be those of before.
  void ShardReplaced(uint32_t shard, Effects* effects);
  // There is a complete checkpoint after `durable_step`: nothing up to it will be asked for again.
  void Release(uint64_t durable_step);
  // The oldest step from which on everything that was sent is kept; 0: nothing is kept.
  uint64_t replay_from() const;
  uint64_t durable_step() const { return durable_step_; }
  uint64_t named_checkpoint() const { return checkpoint_step_; }
  uint64_t kept_bytes() const { return kept_.bytes(); }
  // Of frames that were sent and that no shard has admitted yet.
  uint64_t bytes_in_flight() const;

  // A step is open from StartStep until its StepDone.
  bool step_open() const { return open_; }
  // Of the step that is open or was last.
  uint64_t step() const { return step_; }
  uint64_t next_step() const { return next_step_; }
  // Whether step(), if `of_last`, or else the step after it takes buffers. Every rank says the same
  // of a step: it follows from the job and from the results of the steps before. Bundles of buffers
  // that are not due are sent as skips, unasked.
  bool BuffersDue(bool of_last) const { return of_last ? buffers_due_ : AreBuffersDue(next_step_); }
  // The first tensor that the open step still waits for.
  std::optional<uint32_t> MissingTensor() const;
  const absl::Status& status() const { return status_; }
  // The rest is about the last step, once it is done.
  StepResult Result() const;
  // The mean over what was included. Where nothing was: 0, or of a buffer what is in `mean`.
  // INVALID_ARGUMENT: no such tensor or another size.
  absl::Status DecodeMean(uint32_t tensor, absl::Span<float> mean) const;
  // values[i] += scale * mean[i], with that mean. Of sparse results only the elements that they
  // name are touched. INVALID_ARGUMENT: as above, or it is a buffer.
  absl::Status AddMean(uint32_t tensor, float scale, absl::Span<float> values);
  // Brings parameters that are as the step before left them to what was published: adds it, or
  // takes it in their place where it is the parameters themselves. INVALID_ARGUMENT: as of AddMean.
  absl::Status ApplyUpdate(uint32_t tensor, absl::Span<float> parameters) const;
  // What DecodeMean, or with `update` ApplyUpdate, would do to the tensor's values, which lie on a
  // device: appends it to `*sums`, good until the next step starts. INVALID_ARGUMENT: as theirs;
  // nothing was appended.
  absl::Status AppendSums(uint32_t tensor, bool update, absl::Span<float> values,
                          std::vector<compress::DeviceSum>* sums) const;
  // What was published up to the last step and is in no task yet. It will be in none: whoever takes
  // it has it observed.
  std::vector<Published> TakePublished();
  const protocol::ClosingRecord& Record(uint32_t shard, uint32_t bundle) const;
  const protocol::Layout& layout() const { return options_.layout; }

 private:
  enum class Phase {
    kGathering,  // Gradients or their encoding are not there yet.
    kToSend,     // Encoded; to be sent, or sent again.
    kSent,
    kAdmitted,
    kResolved,
  };
  struct Flight {  // One bundle's way through the step.
    Phase phase = Phase::kGathering;
    uint32_t chunks_missing = 0;
    uint32_t repeats_asked = 0;
    uint32_t weight = 1;
    uint64_t bytes = 0;
    std::shared_ptr<const protocol::Exchange> exchange;  // Until the result is there.
    uint32_t checksum = 0;                               // Of its frames.
    protocol::ClosingRecord record;
    bool exact = false;  // As of ExchangeAnswer.
    uint64_t staleness = 0;
    uint64_t open_step = 0;
    std::vector<std::string> results;
    std::vector<std::string> published;  // Of the last step that had results, until it is encoded.
    bool taken = false;                  // What was published, by TakePublished.
  };
  // What a shard that was replaced is sent again of one step, before anything later is sent.
  struct Replay {
    bool asking = false;  // For the first step that it lacks; until it says, nothing is sent.
    uint64_t step = 0;    // 0: none is sent again.
    std::vector<Flight> flights;  // By bundle; kResolved: not sent again, or answered.
    size_t unresolved = 0;
  };
  struct SentBundle {
    uint64_t step = 0;
    uint32_t bundle = 0;
  };
  struct ShardState {
    std::vector<Flight> flights;     // By bundle.
    std::vector<uint64_t> versions;  // By bundle, as of the last result; 0: none is known.
    uint32_t next_encoding = 0;
    uint32_t next_send = 0;  // None before it is to be sent, in the step that is being sent.
    uint64_t bytes_in_flight = 0;
    bool paused = false;  // Until RetryDue.
    Replay replay;
    std::optional<SentBundle> last_sent;  // The furthest; what is sent again does not count.
    uint64_t asked_step = 0;              // The furthest of AskWhatIsLost.
    uint64_t told_plan = 0;               // Not in lockstep: the plan that it was brought last.
  };

  bool AreBuffersDue(uint64_t step) const;
  std::vector<uint32_t> WithoutMean() const;
  absl::Status CheckMean(uint32_t tensor, size_t elements) const;
  // Of the chunk in the last step: one frame or two; none if n = 0.
  absl::Span<const std::byte> ResultOf(uint32_t chunk) const;
  // What is left once all that is trained is encoded, in a step that takes no buffers.
  void SkipBuffers(Effects* effects);
  void SetExchange(uint32_t shard, uint32_t bundle, bool skip, std::vector<std::string> frames);
  // What is to be sent for the bundle now: of the step that is sent again, else of the open one.
  Flight& FlightToSend(ShardState* state, uint32_t bundle) const;
  // What waits for an answer to this; null: nothing.
  Flight* FindFlight(ShardState* state, uint64_t step, uint32_t bundle) const;
  bool Unresolved(const ShardState& state) const;
  void SendMore(uint32_t shard, Effects* effects);
  void SendAgain(ShardState* state, uint32_t bundle, Flight* flight) const;
  void PauseFor(uint32_t shard, uint32_t retry_after_ms, Effects* effects);
  absl::Status NotSent(uint32_t shard, const protocol::ExchangeAnswer& answer) const;
  void Resolve(uint32_t shard, protocol::ExchangeAnswer answer, Effects* effects);

  // pipeline_replay.cc.
  void AskWhatIsLost(uint32_t shard, Effects* effects);
  void AskForLastSent(uint32_t shard, Effects* effects) const;
  absl::Status CannotAsk(uint32_t shard, const protocol::ExchangeAnswer& answer) const;
  // True: the shard lacks earlier steps, or it says so of something sent long ago.
  bool HandleNeed(uint32_t shard, const protocol::ExchangeAnswer& answer, Effects* effects);
  void BeginReplay(uint32_t shard, uint64_t from, Effects* effects);
  void PrepareReplay(uint32_t shard, Effects* effects);
  std::shared_ptr<const protocol::Exchange> SentAgain(uint32_t shard,
                                                      const ReplayBuffer::Entry& kept) const;
  void ResolveRepeat(uint32_t shard, uint32_t bundle, Effects* effects);
  absl::Status CheckRepeat(uint32_t shard, const protocol::ExchangeAnswer& answer);
  void ReleaseKept();

  absl::Status LearnPlan(uint32_t shard, const protocol::ExchangeAnswer& answer);
  absl::Status CheckResult(uint32_t shard, const Flight& flight,
                           const protocol::ExchangeAnswer& answer) const;
  absl::Status Fenced(uint32_t shard, const protocol::ExchangeAnswer& answer) const;
  absl::Status CheckSteps(uint64_t own_version, size_t chunks,
                          const protocol::ExchangeAnswer& answer) const;
  bool WasInTime() const;
  absl::Status CheckPlace(const protocol::ClosingRecord& record, size_t i) const;
  absl::Status CheckRecord(const Flight& flight, const protocol::ExchangeAnswer& answer) const;
  void Fail(absl::Status status, Effects* effects);

  const PipelineOptions options_;
  std::vector<uint32_t> first_chunk_;  // By tensor, and the number of chunks.
  std::vector<uint32_t> position_;     // Of each chunk in its bundle.
  const uint32_t trained_;             // Tensors; those from here on are buffers.
  uint64_t next_step_;
  float rate_ = 0;
  protocol::PlanBook plans_;
  protocol::PlanBook::Plan plan_;  // That holds in step_.
  uint64_t step_ = 0;
  bool open_ = false;
  bool skipped_ = false;
  bool learning_ = false;     // Some shard has not had a step of it in time.
  bool buffers_due_ = false;  // In step_.
  bool encoding_ = false;     // A task is out.
  size_t bundles_ = 0;        // In all shards.
  size_t trained_bundles_ = 0;
  size_t bundles_to_encode_ = 0;
  size_t bundles_unresolved_ = 0;
  std::vector<GradientView> gradients_;  // By tensor; the step's.
  std::vector<bool> ready_;              // By tensor.
  std::vector<ShardState> shards_;
  ReplayBuffer kept_;
  uint64_t durable_step_ = 0;     // Of the last Release.
  uint64_t checkpoint_step_ = 0;  // The last that was named; 0: none.
  uint32_t bundles_skipped_here_ = 0;
  std::string first_skipped_tensor_;
  std::string first_skipped_buffer_;
  std::vector<float> scratch_;  // AddMean's.
  absl::Status status_;
};

}  // namespace sluice::worker
