// AsyncShard: a shard of a job whose workers do not wait for each other. Every contribution closes
// alone and updates the shard's parameters at once. It serves the asynchronous modes.
// Membership is `fixed`, and there is always an update rule. docs/protocol.md has the rules. Not
// thread-safe.
//
// The version of a bundle is the number of its published updates plus one. Version 1 is the
// parameters of step 0; 0 stands for an unknown version.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "compress/compressor.h"
#include "server/shard/checkpoint_naming.h"
#include "server/shard/plan_schedule.h"
#include "server/shard/request_fence.h"
#include "server/shard/shard.h"
#include "server/shard/shard_layout.h"

namespace sluice::server {

class AsyncShard final : public Shard {
 public:
  static absl::StatusOr<std::unique_ptr<Shard>> Create(ShardOptions options);

  // Never answers BUSY, because Create reserves the memory for all contributions.
  std::vector<ShardEffect> Handle(StreamId stream, protocol::ExchangeRequest exchange,
                                  absl::Time now) override;
  void StreamClosed(StreamId stream) override { gate_.StreamClosed(stream); }
  absl::Status SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) override;
  // Does nothing: the shard keeps no results and answers a repeat with the newest parameters.
  void ReleaseResults(uint64_t) override {}
  uint64_t results_from() const override { return 0; }
  std::vector<ShardEffect> End(absl::string_view reason) override {
    return gate_.End(reason, open_step());
  }
  std::vector<ShardEffect> Suspend(uint32_t term, absl::string_view reason) override {
    return gate_.Suspend(term, reason, open_step());
  }
  // The returned step is at least two steps after the furthest rank's step. The shard takes the
  // snapshot once the slowest rank has contributed to that step. The snapshot includes later
  // contributions of other ranks.
  uint64_t NameCheckpoint(uint64_t minimum_step) override;
  std::vector<ShardEffect> Tick(absl::Time) override { return {}; }
  std::string FenceReason(const protocol::Sender& sender) const override {
    return gate_.FenceReason(sender);
  }
  ShardStats Stats() const override;
  double ResidualEnergy() const override { return replica().OwedEnergy(); }
  void Measured(const StepMeasurements& measured) override;
  std::shared_ptr<const protocol::CompressionPlan> plan() const override {
    return plans_.InForce(open_step());
  }
  absl::Span<const float> DownlinkResidual(uint32_t bundle, size_t position) const override;
  uint64_t open_step() const override;
  uint32_t bundles() const override { return static_cast<uint32_t>(plan_.bundles.size()); }
  const ShardOptions& options() const override { return options_; }
  const ShardParameters& replica() const { return *plan_.replica; }
  uint64_t version(uint32_t bundle) const { return plan_.bundles[bundle].version; }

 private:
  using Effects = std::vector<ShardEffect>;

  // One publication. It leads from one published version to the next.
  struct Publication {
    uint64_t from = 0;
    uint64_t to = 0;
    uint64_t bytes = 0;
    std::vector<std::string> frames;  // By chunk.
  };
  // The position of one rank in one bundle.
  struct Place {
    uint64_t next = 0;        // First step that the rank has not contributed to.
    protocol::Included last;  // The rank's last contribution, as recorded.
    uint32_t n = 0;
    float rate = 0;
    uint64_t staleness = 0;
    // The rank's RESULT while it waits. The parameters are added when the RESULT is sent.
    std::unique_ptr<protocol::ExchangeReply> waiting;
    absl::Time waits_since;
  };
  struct BundleState {
    bool begun = false;             // The initial parameters have arrived.
    protocol::Included parameters;  // As rank 0 sent them.
    uint64_t least = 0;             // Lowest `next` of all places.
    uint64_t oldest = 1;            // Version that this process began with.
    std::vector<Place> places;      // By rank.
    std::deque<Publication> log;
    uint64_t log_bytes = 0;
    uint64_t exact_bytes = 0;  // Bytes of the bundle's parameters in codec none. Limits log_bytes.
    bool published = false;    // The bundle was published since the thresholds last moved.
    std::vector<std::string> buffers;  // Buffers of rank 0, until all ranks have them.
  };

  AsyncShard(ShardOptions options, ShardLayout plan);

  uint64_t Updates(uint32_t bundle) const;
  absl::Status CheckRequest(const protocol::ExchangeRequest& exchange) const;
  void MakePlans(Effects* out);

  void Close(StreamId stream, const protocol::ExchangeRequest& exchange, absl::Time now,
             Effects* out);
  void Begin(const protocol::ExchangeRequest& exchange);
  void Update(const protocol::ExchangeRequest& exchange, Place* place, Effects* out);
  // Returns the RESULT for a request, without record and parameters.
  std::unique_ptr<protocol::ExchangeReply> AnswerTo(
      const protocol::ExchangeRequest& exchange) const;
  void AnswerRequest(StreamId stream, const protocol::ExchangeRequest& exchange, absl::Time now,
                     Effects* out);
  void MoveOn(uint32_t bundle, Place* place, uint64_t step);
  bool MayAnswer(uint32_t bundle, uint64_t step) const;
  bool bounded() const { return job::TraitsOf(options_.mode).staleness_bounded; }
  void Respond(StreamId stream, const protocol::ExchangeRequest& exchange,
               std::unique_ptr<protocol::ExchangeReply> answer, absl::Time now, Effects* out);
  void AnswerWaiting(uint32_t bundle, absl::Time now, Effects* out);
  void SendNewest(StreamId stream, std::unique_ptr<protocol::ExchangeReply> answer,
                  absl::Duration waited, Effects* out);
  void PublishBundle(uint32_t bundle, Effects* out);
  void MoveThresholds();
  // Adds the frames that lead from the base version of the answer to the newest version.
  void Bring(protocol::ExchangeReply* answer);
  std::vector<std::string> ExactFrames(uint32_t bundle) const;

  // Defined in async_shard_checkpoint.cc.
  void AnnounceCheckpoint(Effects* out);
  void WriteSnapshots(Effects* out);
  std::shared_ptr<const protocol::ShardSnapshot> Snapshot(uint64_t step);
  absl::Status Restore(const protocol::ShardSnapshot& snapshot);
  absl::Status CheckClocks(const protocol::ShardSnapshot& snapshot) const;

  const ShardOptions options_;
  ShardStats stats_;
  RequestFence gate_;
  ShardLayout plan_;
  compress::Compressor downlink_;
  PlanSchedule plans_;
  uint64_t next_plan_;       // Shard 0: the next step for which it makes a plan.
  uint64_t brought_ = 0;     // Number of publications in results since the last measurement.
  uint64_t brought_in_ = 0;  // Number of results of trained bundles since the last measurement.
  const std::unique_ptr<compress::Codec> exact_;
  std::vector<BundleState> states_;             // By bundle.
  std::vector<float> sum_;                      // The contribution that is being applied.
  std::vector<std::vector<std::byte>> frames_;  // Scratch.
  bool diverged_ = false;                       // The alarm was sent.

  std::vector<uint64_t> reached_;  // The highest step in a rank's requests, by rank.
  CheckpointNaming checkpoints_;
};

}  // namespace sluice::server
