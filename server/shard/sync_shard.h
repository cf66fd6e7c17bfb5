// SyncShard: a shard of a job in which every step waits for all ranks, or for a quorum of them:
// modes `sync` and `local_sgd`. With a quorum, work that comes after its bundle closed without it
// joins the oldest open step of the bundle. With membership `elastic` every step waits for all who
// are there; newcomers are there from the first step on that they are in time for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compress/compressor.h"
#include "server/shard/open_bundle.h"
#include "server/shard/replica.h"
#include "server/shard/shard.h"
#include "server/shard/shard_gate.h"
#include "server/shard/shard_plan.h"
#include "server/shard/shard_plans.h"

namespace sluice::server {

class SyncShard final : public Shard {
 public:
  static absl::StatusOr<std::unique_ptr<Shard>> Create(ShardOptions options);

  std::vector<ShardEffect> Handle(StreamId stream, protocol::Exchange exchange,
                                  absl::Time now) override;
  void StreamClosed(StreamId stream) override { gate_.StreamClosed(stream); }
  absl::Status SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) override;
  void ReleaseResults(uint64_t durable_step) override;
  uint64_t results_from() const override;
  std::vector<ShardEffect> End(absl::string_view reason) override {
    return gate_.End(reason, open_step_);
  }
  std::vector<ShardEffect> Suspend(uint32_t term, absl::string_view reason) override {
    return gate_.Suspend(term, reason, open_step_);
  }
  uint64_t NameCheckpoint(uint64_t minimum_step) override;
  std::vector<ShardEffect> Publish(const Publication& publication) override;
  std::vector<ShardEffect> Tick(absl::Time now) override;
  void Measured(const StepMeasurements& measured) override {
    if (plans_.maker != nullptr) plans_.measured = measured;
  }
  absl::Time tick_due() const override;
  std::vector<std::shared_ptr<const protocol::ExchangeAnswer>> ResultsAfter(
      uint64_t step, const std::vector<uint32_t>& bundles) const override;
  std::string FenceReason(const protocol::Sender& sender) const override {
    return gate_.FenceReason(sender);
  }
  ShardStats Stats() const override;
  double ResidualEnergy() const override;
  absl::Span<const float> DownlinkResidual(uint32_t bundle, size_t position) const override;
  uint64_t open_step() const override { return open_step_; }
  std::shared_ptr<const protocol::CompressionPlan> plan() const override {
    return plans_.known.At(open_step_);
  }
  uint32_t bundles() const override { return static_cast<uint32_t>(bundles_.size()); }
  const ShardOptions& options() const override { return options_; }

 private:
  struct RankState {
    StreamId answered = 0;    // The last stream that something was answered on.
    uint64_t unanswered = 0;  // Bytes; see ShardOptions.
    uint64_t acked = 0;       // By its present holder.
    uint64_t reached = 0;     // The highest step that its present holder sent something of.
    uint64_t inherited = 0;   // Up to this step an earlier holder may have contributed.
  };
  struct OpenStep {
    std::vector<std::unique_ptr<OpenBundle>> bundles;  // Null: nothing arrived yet, or closed.
  };
  // With a quorum: the last of a rank's work of a bundle that was admitted. What it sends of
  // earlier steps are repeats.
  struct Admitted {
    uint64_t step = 0;
    uint32_t checksum = 0;
  };
  using Effects = std::vector<ShardEffect>;

  void AnnounceCheckpoint(Effects* out);
  void LearnCheckpoint(uint64_t step, Effects* out);
  // The last step that a checkpoint is due after; 0: none is.
  uint64_t DueCheckpoint() const { return due_.empty() ? 0 : due_.back(); }
  // What goes on must be the same shard of the same run, at the same step.
  absl::Status Restore(const protocol::ShardSnapshot& snapshot);
  std::shared_ptr<const protocol::ShardSnapshot> Snapshot() const;

  SyncShard(ShardOptions options, ShardPlan plan);

  // Each says what is wrong with one part of a request.
  absl::Status CheckAddress(const protocol::Exchange& exchange) const;
  absl::Status CheckCheckpointStep(const protocol::Exchange& exchange) const;
  bool IsClosed(uint64_t step, uint32_t bundle) const;
  bool HasArrived(const protocol::Exchange& exchange) const;
  // The sender is at a step that this shard, which goes through the steps again, has not reached.
  bool IsAhead(const protocol::Exchange& exchange) const;
  void HandleKeys(StreamId stream, const protocol::Exchange& exchange, Effects* out);
  void HandleClosed(StreamId stream, protocol::Exchange exchange, Effects* out);
  void HandleForgotten(StreamId stream, const protocol::Exchange& exchange, Effects* out);
  void RefuseOtherBytes(StreamId stream, const protocol::Exchange& exchange, uint32_t had,
                        uint32_t got, Effects* out);
  void GiveUpReplay(StreamId stream, const protocol::Exchange& exchange, std::string why,
                    Effects* out);
  // sync_shard_quorum.cc.
  bool MayCloseEarly() const;
  bool WaitsForAll(uint32_t bundle) const;
  bool IsDue(uint32_t bundle) const;
  void NoteQuorum(uint32_t bundle);
  void CloseDue(Effects* out);
  void HandleLate(StreamId stream, protocol::Exchange exchange,
                  const protocol::ExchangeAnswer& result, Effects* out);
  void TakeLate(protocol::Exchange exchange, uint32_t checksum);
  OpenBundle* FindOrOpen(uint64_t step, uint32_t bundle);
  void CountIn(const protocol::Exchange& exchange);
  void Admit(StreamId stream, protocol::Exchange exchange, absl::Time now, Effects* out);
  // sync_shard_plans.cc.
  absl::Status CheckPlans(const protocol::Exchange& exchange) const;
  absl::Status CheckBrought(const protocol::Exchange& exchange) const;
  absl::Status CheckAnnounced(const protocol::Exchange& exchange) const;
  absl::Status CheckKnown(const protocol::Exchange& exchange) const;
  void LearnPlan(const protocol::Exchange& exchange);
  protocol::PlanBook::Plan NextPlan();
  void MakePlan(Effects* out);
  void TakeUpPlanOf(uint64_t step);
  // sync_shard_elastic.cc.
  bool IsMember(uint32_t bundle, uint32_t rank, uint64_t step) const;
  void BecomeMember(uint32_t bundle, uint32_t rank, uint64_t step);
  void Vacate(uint32_t rank);
  void AwaitMembers(uint64_t step, uint32_t bundle, OpenBundle* open) const;
  bool IsStoodFor(const protocol::Exchange& exchange) const;
  void AnswerLearner(StreamId stream, const protocol::Exchange& exchange,
                     const protocol::ExchangeAnswer& result, Effects* out);
  void RefuseWork(StreamId stream, const protocol::Exchange& exchange, Effects* out);
  void CloseComplete(Effects* out);
  bool MayStayUnanswered(const RankState& rank, StreamId stream, uint64_t bytes) const;
  void Close(uint32_t bundle, Effects* out);
  std::unique_ptr<OpenBundle> TakeOpen(uint32_t bundle);
  // The rest of a close, once the results are there.
  void Conclude(uint32_t bundle, const OpenBundle& open,
                const std::shared_ptr<protocol::ExchangeAnswer>& answer, Effects* out);
  // sync_shard_relay.cc.
  void HandOn(uint32_t bundle, Effects* out);
  // Each fills in the results of a bundle that closes, and what it changes in the record.
  void CloseWithParameters(uint32_t bundle, OpenBundle* open, protocol::ExchangeAnswer* answer);
  void CloseWithMean(uint32_t bundle, OpenBundle* open, protocol::ExchangeAnswer* answer,
                     Effects* out);
  void CloseWithUpdate(uint32_t bundle, OpenBundle* open, protocol::ExchangeAnswer* answer,
                       Effects* out);
  void TakeFrames(uint32_t bundle, protocol::ExchangeAnswer* answer);
  Notice MeanLeftOut(uint32_t bundle, absl::string_view what, absl::string_view why) const;
  void LeaveOut(uint32_t bundle, absl::string_view why, protocol::ExchangeAnswer* answer,
                Effects* out);
  void AdvanceSteps(Effects* out);
  void ForgetResults();
  bool OverMemory(const protocol::Exchange& exchange) const;
  void AnswerBusy(StreamId stream, const protocol::Exchange& exchange, absl::Time now,
                  Effects* out);
  void SendResult(StreamId stream, std::shared_ptr<const protocol::ExchangeAnswer> answer,
                  Effects* out);
  // Where the sender of a NEED is to begin.
  uint64_t NeededFrom(const protocol::Exchange& exchange) const;
  OpenBundle* FindOpen(uint64_t step, uint32_t bundle) const;
  uint64_t StepAfter(uint64_t step) const;

  const ShardOptions options_;
  uint64_t reserved_bytes_ = 0;  // For sums and residuals.
  ShardStats stats_;
  ShardGate gate_;
  std::vector<BundlePlan> bundles_;
  std::vector<RankState> ranks_;
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators_;  // Of all bundles' chunks.
  const std::vector<compress::ChunkConfig> downlink_base_;  // As the job file has it, by chunk.
  compress::Compressor downlink_;
  ShardPlans plans_;
  // What an earlier process announced with results of these steps, as the workers say who had them;
  // null: nothing. At most of the open step and the next.
  std::map<uint64_t, protocol::PlanBook::Plan> announced_;
  std::optional<Replica> replica_;              // With a rule.
  std::vector<float> means_;                    // Of the bundle that is updated.
  std::vector<std::vector<std::byte>> frames_;  // Of the last result: memory that is used again.
  ResultLog log_;
  SumPool sums_;  // Outlives the bundles that have some of it.

  uint64_t open_step_;        // The lowest with a bundle that is not closed.
  OpenStep open_;             // Of open_step_.
  OpenStep next_;             // Of open_step_ + 1; closes nothing before it becomes open_.
  std::vector<bool> closed_;  // By bundle, in open_step_.
  std::vector<bool> handed_;  // Likewise: waits for its Publish.
  size_t closed_count_ = 0;
  bool noticed_ = false;            // Tick has spoken about open_step_.
  uint64_t wanted_checkpoint_ = 0;  // Asked for and not named yet; 0: none.
  bool asked_again_ = false;        // While one was due; whoever asked may not know.
  // Steps that a checkpoint is due after, ascending. One, but for when shards and workers were lost
  // together with what they knew of a name, and another was given.
  std::vector<uint64_t> due_;
  // With a quorum, by bundle and rank.
  std::vector<std::vector<Admitted>> admitted_;
  // Elastic, by bundle and rank: the first step that its holder was there in time for; infinity:
  // none yet, or nobody holds it.
  std::vector<std::vector<uint64_t>> member_since_;
  bool members_changed_ = false;  // What waits may be complete.
  // Bundles of the open step whose quorum is there, and since when.
  std::set<std::pair<absl::Time, uint32_t>> quorums_;
  absl::Time now_ = absl::InfinitePast();  // The latest that it was told.
  uint64_t furthest_step_ = 0;             // Of all requests, also of those that came too early.
  uint64_t released_step_ = 0;             // As ReleaseResults was told.
};

}  // namespace sluice::server
