// Shard: the state machine of one shard for mode `sync`, membership `fixed`, rule `average`.
// docs/protocol.md has the rules. Pure: time comes in, effects go out as values; the same events
// give the same effects. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "job/exchange.h"
#include "job/job_spec.h"
#include "job/layout.h"
#include "job/snapshot.h"
#include "job/stage_times.h"
#include "job/tensor_table.h"
#include "server/core/notice.h"
#include "server/core/open_bundle.h"
#include "server/core/result_log.h"
#include "server/core/shard_stats.h"

namespace sluice {

// Names one Exchange stream; never 0. A stream that was opened later has a higher id.
using StreamId = uint64_t;

struct ShardOptions {
  uint32_t shard = 0;  // Its index in `layout`.
  TensorTable table;
  Layout layout;
  CompressionSpec compression;
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint32_t generation = 1;
  uint64_t server_incarnation = 0;
  std::vector<uint64_t> incarnations;  // Of each rank's worker; as many as the world has ranks.
  uint64_t first_step = 1;
  bool parameters_agree = true;  // False: step 0, the parameter agreement, comes before first_step.
  uint64_t window_bytes = 16 << 20;         // Credits of each worker.
  uint64_t max_memory = uint64_t{8} << 30;  // See Create and Handle.
  ResultLogLimits log;
  // Of results that all ranks have, kept until ReleaseResults for workers that are started again
  // and go through those steps anew; 0: they are forgotten. In place of log's limits. No more than
  // max_memory leaves: Stats().log_limit.
  uint64_t replay_bytes = 0;
  // The other parties may be further than first_step: the workers send again what this shard lost.
  // Requests that show so are answered NEED with the open step, and change nothing.
  bool replay = false;
  // Of a rank's admitted contributions to bundles that are not closed: so many go without a
  // PENDING, since their RESULT gives the credits back too. 0: none.
  uint64_t unanswered_bytes = 0;
  uint32_t invalid_limit = 3;   // So many invalid ones running fence a rank.
  uint32_t busy_retry_ms = 50;  // What BUSY says at first; an eighth of the step's wait later,
  uint32_t busy_retry_ms_max = 1000;                   // up to this.
  absl::Duration straggler_notice = absl::Seconds(5);  // Of waiting for the last rank.
  // Of the step before first_step, to go on from bit for bit; null: begin with nothing. Create lets
  // go of it.
  std::shared_ptr<const ShardSnapshot> restore;
  uint32_t restored_ranks = 0;  // That wrote it; 0: as many as now.
  // Not owned; null: nobody measures. Changes nothing but what it measures.
  StageTimes* stages = nullptr;
};

// Send `answer` on `stream`. A RESULT that goes to several streams is one object.
struct Reply {
  StreamId stream = 0;
  std::shared_ptr<const ExchangeAnswer> answer;
};
// The job cannot go on; for the coordinator and the log.
struct Alarm {
  std::string text;
};
// Of shard 0: the results that follow are the first of this shard to say that a job checkpoint is
// due after `step`. With ShardOptions::replay also of one that an earlier process had named.
struct CheckpointNamed {
  uint64_t step = 0;
};
// The shard's part of a job checkpoint, to be written. Comes right after the step's last results;
// nothing of later steps is in it.
struct TakeSnapshot {
  std::shared_ptr<const ShardSnapshot> snapshot;
};
// The new holder of `rank` cannot go through `step` as the one before did: it sent other bytes
// (training is not deterministic), or needs a result that is no longer kept. The job must go back
// to a checkpoint. The sender is answered BUSY, and this comes again when it tries again.
struct NotReproducible {
  uint32_t rank = 0;
  uint64_t step = 0;
  std::string text;
};
using ShardEffect =
    std::variant<Reply, Alarm, Notice, CheckpointNamed, TakeSnapshot, NotReproducible>;

class Shard {
 public:
  // INVALID_ARGUMENT: options that do not fit together, a snapshot of another run, shard, layout or
  // compression. RESOURCE_EXHAUSTED: sums, residuals and the ranks' windows do not fit in
  // max_memory; the message says how much would.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(ShardOptions options);

  // One request of a worker, answered at once on its stream: RESULT, PENDING, NEED, FENCED, INVALID
  // or BUSY. One that completes a bundle is answered by the RESULT that goes to every rank's latest
  // stream. Over max_memory the answer is BUSY, except for the lowest open bundle of the open step,
  // which is always admitted.
  std::vector<ShardEffect> Handle(StreamId stream, Exchange exchange, absl::Time now);
  // Nothing can be sent on it any more. What its rank has admitted stays.
  void StreamClosed(StreamId stream);
  // Generation and holders of all ranks, as the coordinator says. A changed incarnation fences the
  // one before; what that one has admitted stays, and what the new one sends of the same steps must
  // be the same bytes. INVALID_ARGUMENT: a lower generation, or another number of ranks.
  absl::Status SetMembership(uint32_t generation, std::vector<uint64_t> incarnations);
  // The newest complete checkpoint is that after `durable_step`: nobody will ask for results up to
  // it again. They are forgotten as soon as all ranks have acknowledged them.
  void ReleaseResults(uint64_t durable_step);
  // The oldest step from which on all results are kept, for a worker that begins with it; 0: none
  // are kept.
  uint64_t results_from() const;
  // Ends it: streams and all later requests are answered FENCED with `reason`.
  std::vector<ShardEffect> End(absl::string_view reason);
  // As End, because the job goes back to a checkpoint in `term`, which the answers carry: the
  // workers are to join again.
  std::vector<ShardEffect> Suspend(uint32_t term, absl::string_view reason);
  // Of shard 0: asks for a job checkpoint and returns the step it is to be after: at least
  // `minimum_step` and two after the open one. It is named no sooner than it must, by the first
  // result that says it; a later call replaces one that is not named yet. From then on every result
  // says it until its step is closed, so that all workers know it, and through their requests all
  // other shards, before any can close that step. Until then it stays, and later calls change
  // nothing. With ShardOptions::replay it waits, and the step rises, until this shard is where the
  // workers are.
  uint64_t NameCheckpoint(uint64_t minimum_step);
  // Says who is late, once per step.
  std::vector<ShardEffect> Tick(absl::Time now);

  // What is logged after `step`, in (bundle, step) order; `bundles` empty: all.
  std::vector<std::shared_ptr<const ExchangeAnswer>> ResultsAfter(
      uint64_t step, const std::vector<uint32_t>& bundles) const;
  // Why this sender would be fenced; empty if it would not.
  std::string FenceReason(const Sender& sender) const;

  ShardStats Stats() const;
  // Sum of squares over the downlink residuals. Walks them.
  double ResidualEnergy() const { return downlink_.ResidualEnergy(); }
  absl::Span<const float> DownlinkResidual(uint32_t bundle, size_t position) const;
  uint64_t open_step() const { return open_step_; }
  uint32_t bundles() const { return static_cast<uint32_t>(bundles_.size()); }
  const ShardOptions& options() const { return options_; }

 private:
  struct BundlePlan {
    std::vector<uint32_t> counts;          // Elements of each chunk.
    std::vector<uint32_t> locals;          // Each chunk's index in downlink_ and aggregators_.
    std::vector<Aggregator*> aggregators;  // One per chunk.
    uint64_t elements = 0;
    uint64_t version = 0;
    bool buffers = false;  // Most steps have nothing for it.
  };
  struct RankState {
    StreamId stream = 0;      // Where its results go; 0: nowhere now.
    StreamId answered = 0;    // The last stream that something was answered on.
    uint64_t unanswered = 0;  // Bytes; see ShardOptions.
    uint64_t acked = 0;       // By its present holder.
    uint64_t reached = 0;     // The highest step that its present holder sent something of.
    uint64_t inherited = 0;   // Up to this step an earlier holder may have contributed.
    uint32_t invalid_running = 0;
    std::string fenced;  // Why; empty: it is not.
  };
  struct OpenStep {
    std::vector<std::unique_ptr<OpenBundle>> bundles;  // Null: nothing arrived yet, or closed.
  };
  using Effects = std::vector<ShardEffect>;

  void AnnounceCheckpoint(Effects* out);
  void LearnCheckpoint(uint64_t step, Effects* out);
  // The last step that a checkpoint is due after; 0: none is.
  uint64_t DueCheckpoint() const { return due_.empty() ? 0 : due_.back(); }
  // What goes on must be the same shard of the same run, at the same step.
  absl::Status Restore(const ShardSnapshot& snapshot);
  std::shared_ptr<const ShardSnapshot> Snapshot() const;

  Shard(ShardOptions options, std::vector<BundlePlan> bundles,
        std::vector<std::unique_ptr<Aggregator>> aggregators,
        absl::Span<const ChunkConfig> downlink);

  static uint64_t ElementsOf(const std::vector<BundlePlan>& bundles);
  // Each says what is wrong with one part of a request.
  absl::Status CheckAddress(const Exchange& exchange) const;
  absl::Status CheckCheckpointStep(const Exchange& exchange) const;
  // `repeats`: something came before, so that aggregators have moved on and only what the frames
  // say of themselves can be checked.
  absl::Status CheckPayload(const Exchange& exchange, bool repeats) const;
  absl::Status CheckFrame(const Exchange& exchange, size_t position, bool repeats) const;
  bool IsClosed(uint64_t step, uint32_t bundle) const;
  bool HasArrived(const Exchange& exchange) const;
  // The sender is at a step that this shard, which goes through the steps again, has not reached.
  bool IsAhead(const Exchange& exchange) const;
  void HandleKeys(StreamId stream, const Exchange& exchange, Effects* out);
  void HandleClosed(StreamId stream, const Exchange& exchange, Effects* out);
  void HandleForgotten(StreamId stream, const Exchange& exchange, Effects* out);
  void RefuseOtherBytes(StreamId stream, const Exchange& exchange, uint32_t had, uint32_t got,
                        Effects* out);
  void GiveUpReplay(StreamId stream, const Exchange& exchange, std::string why, Effects* out);
  void Admit(StreamId stream, Exchange exchange, absl::Time now, Effects* out);
  bool MayStayUnanswered(const RankState& rank, StreamId stream, uint64_t bytes) const;
  void Close(uint32_t bundle, Effects* out);
  std::shared_ptr<ExchangeAnswer> CloseWithRankZero(uint32_t bundle, OpenBundle* open);
  std::shared_ptr<ExchangeAnswer> CloseWithMean(uint32_t bundle, OpenBundle* open, Effects* out);
  void AdvanceSteps(Effects* out);
  void ForgetResults();
  bool OverMemory(const Exchange& exchange) const;
  void AnswerBusy(StreamId stream, const Exchange& exchange, absl::Time now, Effects* out);
  void Answer(StreamId stream, const Exchange& exchange, Outcome outcome, std::string message,
              Effects* out);
  void SendResult(StreamId stream, std::shared_ptr<const ExchangeAnswer> answer, Effects* out);
  // INVALID; after invalid_limit of them running, FENCED and an alarm.
  void Refuse(StreamId stream, const Exchange& exchange, const absl::Status& why, Effects* out);
  OpenBundle* FindOpen(uint64_t step, uint32_t bundle) const;
  uint64_t StepAfter(uint64_t step) const;

  const ShardOptions options_;
  uint64_t reserved_bytes_ = 0;  // For sums and residuals.
  uint32_t generation_;
  std::vector<uint64_t> incarnations_;
  std::vector<BundlePlan> bundles_;
  std::vector<RankState> ranks_;
  std::vector<std::unique_ptr<Aggregator>> aggregators_;  // Of all bundles' chunks.
  Compressor downlink_;
  std::vector<std::vector<std::byte>> frames_;  // Of the last result: memory that is used again.
  ResultLog log_;
  ShardStats stats_;
  SumPool sums_;  // Outlives the bundles that have some of it.

  uint64_t open_step_;        // The lowest with a bundle that is not closed.
  OpenStep open_;             // Of open_step_.
  OpenStep next_;             // Of open_step_ + 1; closes nothing before it becomes open_.
  std::vector<bool> closed_;  // By bundle, in open_step_.
  size_t closed_count_ = 0;
  bool noticed_ = false;            // Tick has spoken about open_step_.
  std::string ended_;               // Why; empty while it runs.
  uint32_t job_term_;               // Above options_.term once it is suspended.
  uint64_t wanted_checkpoint_ = 0;  // Asked for and not named yet; 0: none.
  bool asked_again_ = false;        // While one was due; whoever asked may not know.
  // Steps that a checkpoint is due after, ascending. One, but for when shards and workers were lost
  // together with what they knew of a name, and another was given.
  std::vector<uint64_t> due_;
  uint64_t furthest_step_ = 0;  // Of all requests, also of those that came too early.
  uint64_t released_step_ = 0;  // As ReleaseResults was told.
};

}  // namespace sluice
