// AsyncShard: a shard of a job whose workers do not wait for each other: every contribution closes
// by itself and updates the shard's parameters at once. Mode `async`; and `ssp`, where a rank gets
// no result that would bring it too far ahead of the slowest. Membership `fixed`; always with a
// rule. docs/protocol.md has the rules. Not thread-safe.
//
// The version of a bundle is the number of its updates that are published, plus one: 1 are the
// parameters of step 0, and 0 stands for one that nobody knows.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "compress/compressor.h"
#include "server/shard/shard.h"
#include "server/shard/shard_gate.h"
#include "server/shard/shard_plan.h"
#include "server/shard/shard_plans.h"

namespace sluice::server {

class AsyncShard final : public Shard {
 public:
  static absl::StatusOr<std::unique_ptr<Shard>> Create(ShardOptions options);

  // Nothing is held back for room: what a contribution needs is reserved, so BUSY is never said.
  std::vector<ShardEffect> Handle(StreamId stream, protocol::Exchange exchange,
                                  absl::Time now) override;
  void StreamClosed(StreamId stream) override { gate_.StreamClosed(stream); }
  absl::Status SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) override;
  // No result is kept for a repeat, which is answered with what is newest.
  void ReleaseResults(uint64_t) override {}
  uint64_t results_from() const override { return 0; }
  std::vector<std::shared_ptr<const protocol::ExchangeAnswer>> ResultsAfter(
      uint64_t, const std::vector<uint32_t>&) const override {
    return {};
  }
  std::vector<ShardEffect> End(absl::string_view reason) override {
    return gate_.End(reason, open_step());
  }
  std::vector<ShardEffect> Suspend(uint32_t term, absl::string_view reason) override {
    return gate_.Suspend(term, reason, open_step());
  }
  // At least two steps after the furthest rank. The snapshot is taken when the slowest has made its
  // contributions to that step; those of later steps by others are in it.
  uint64_t NameCheckpoint(uint64_t minimum_step) override;
  std::vector<ShardEffect> Tick(absl::Time) override { return {}; }
  std::string FenceReason(const protocol::Sender& sender) const override {
    return gate_.FenceReason(sender);
  }
  ShardStats Stats() const override;
  double ResidualEnergy() const override { return replica().OwedEnergy(); }
  void Measured(const StepMeasurements& measured) override;
  std::shared_ptr<const protocol::CompressionPlan> plan() const override {
    return plans_.known.newest();
  }
  absl::Span<const float> DownlinkResidual(uint32_t bundle, size_t position) const override;
  uint64_t open_step() const override;
  uint32_t bundles() const override { return static_cast<uint32_t>(plan_.bundles.size()); }
  const ShardOptions& options() const override { return options_; }
  const Replica& replica() const { return *plan_.replica; }
  uint64_t version(uint32_t bundle) const { return plan_.bundles[bundle].version; }

 private:
  using Effects = std::vector<ShardEffect>;

  // What was published at once: it leads from one version to the next that there is.
  struct Publication {
    uint64_t from = 0;
    uint64_t to = 0;
    uint64_t bytes = 0;
    std::vector<std::string> frames;  // By chunk.
  };
  // One rank's place in one bundle.
  struct Place {
    uint64_t next = 0;        // The step that it has not contributed to yet; all before it are in.
    protocol::Included last;  // What it contributed last, as recorded.
    uint32_t n = 0;
    float rate = 0;
    uint64_t staleness = 0;
    std::unique_ptr<protocol::ExchangeAnswer> waiting;  // Its RESULT, all but what is newest.
    absl::Time waits_since;
  };
  struct BundleState {
    bool begun = false;             // The parameters are there.
    protocol::Included parameters;  // As rank 0 sent them.
    uint64_t least = 0;             // Of places' `next`.
    uint64_t oldest = 1;            // Version that it began with.
    std::vector<Place> places;      // By rank.
    std::deque<Publication> log;
    uint64_t log_bytes = 0;
    uint64_t exact_bytes = 0;  // Of all its parameters in codec none; the log holds no more.
    bool published = false;    // Since thresholds moved.
    std::vector<std::string> buffers;  // Rank 0's, until all have them.
  };

  AsyncShard(ShardOptions options, ShardPlan plan);

  uint64_t StepAfter(uint64_t step) const { return step == 0 ? options_.first_step : step + 1; }
  uint64_t Updates(uint32_t bundle) const;
  absl::Status CheckRequest(const protocol::Exchange& exchange) const;
  absl::Status CheckCheckpointStep(const protocol::Exchange& exchange) const;
  // async_shard_plans.cc.
  absl::Status CheckPlans(const protocol::Exchange& exchange) const;
  void LearnPlan(const protocol::Exchange& exchange);
  void MakePlans(Effects* out);
  void TakeUp(protocol::PlanBook::Plan plan);

  void Close(StreamId stream, const protocol::Exchange& exchange, absl::Time now, Effects* out);
  void Begin(const protocol::Exchange& exchange);
  void Update(const protocol::Exchange& exchange, Place* place, Effects* out);
  // The RESULT of a request, without its record and what it brings.
  std::unique_ptr<protocol::ExchangeAnswer> AnswerTo(const protocol::Exchange& exchange) const;
  void AnswerRequest(StreamId stream, const protocol::Exchange& exchange, absl::Time now,
                     Effects* out);
  void MoveOn(uint32_t bundle, Place* place, uint64_t step);
  bool MayAnswer(uint32_t bundle, uint64_t step) const;
  void Respond(StreamId stream, const protocol::Exchange& exchange,
               std::unique_ptr<protocol::ExchangeAnswer> answer, absl::Time now, Effects* out);
  void AnswerWaiting(uint32_t bundle, absl::Time now, Effects* out);
  void SendNewest(StreamId stream, std::unique_ptr<protocol::ExchangeAnswer> answer,
                  absl::Duration waited, Effects* out);
  void PublishBundle(uint32_t bundle, Effects* out);
  void MoveThresholds();
  // What brings whoever has answer's base version to the newest.
  void Bring(protocol::ExchangeAnswer* answer);
  std::vector<std::string> ExactFrames(uint32_t bundle) const;

  // async_shard_checkpoint.cc.
  void AnnounceCheckpoint(Effects* out);
  uint64_t CheckpointFor(uint64_t step) const;
  void LearnCheckpoint(uint64_t step);
  void TakeSnapshots(Effects* out);
  std::shared_ptr<const protocol::ShardSnapshot> Snapshot(uint64_t step);
  absl::Status Restore(const protocol::ShardSnapshot& snapshot);
  absl::Status CheckClocks(const protocol::ShardSnapshot& snapshot) const;

  const ShardOptions options_;
  ShardStats stats_;
  ShardGate gate_;
  ShardPlan plan_;
  const std::vector<compress::ChunkConfig> downlink_base_;  // As the job file has it, by chunk.
  compress::Compressor downlink_;
  ShardPlans plans_;
  uint64_t next_plan_;       // Of shard 0: plans of the steps before this one are made.
  uint64_t brought_ = 0;     // Publications, in results since something was measured,
  uint64_t brought_in_ = 0;  // and how many results of trained bundles those were.
  const std::unique_ptr<compress::Codec> exact_;
  std::vector<BundleState> states_;             // By bundle.
  std::vector<float> sum_;                      // Of the contribution that is applied.
  std::vector<std::vector<std::byte>> frames_;  // Memory that is used again.
  bool diverged_ = false;                       // It was told.

  std::vector<uint64_t> reached_;   // By rank: the highest step that it sent something of.
  uint64_t wanted_checkpoint_ = 0;  // Asked for and not named yet; 0: none.
  uint64_t last_named_ = 0;
  std::vector<uint64_t> due_;  // Steps that a checkpoint is due after, ascending.
};

}  // namespace sluice::server
