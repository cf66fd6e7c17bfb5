// SPDX-License-Identifier: Apache-2.0
// AsyncShard: a shard of a job whose workers do not wait for each other. Every contribution closes
// alone and updates the shard's parameters at once. It serves the asynchronous modes. There is
// always an update rule. With membership `elastic`, a newcomer may begin at the step of any
// checkpoint; RankClocks decides from when on others wait for it. docs/protocol.md has the rules.
// Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/shard/checkpoint_naming.h"
#include "server/shard/parameter_publisher.h"
#include "server/shard/plan_schedule.h"
#include "server/shard/rank_clocks.h"
#include "server/shard/request_fence.h"
#include "server/shard/shard.h"
#include "server/shard/shard_layout.h"
#include "server/shard/shard_threads.h"
#include "server/shard/update_guard.h"

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
  absl::Status CheckPartStep(uint64_t step) const override {
    return checkpoints_.CheckPartStep(step);
  }
  std::vector<ShardEffect> Tick(absl::Time now) override;
  absl::Time tick_due() const override {
    return members_changed_ ? absl::InfinitePast() : absl::InfiniteFuture();
  }
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
  uint64_t open_step() const override { return clocks_.open_step(); }
  const ShardParameters* parameters() const override { return &replica(); }
  std::optional<uint64_t> settled_step() const override {
    return open_step() == 0 ? std::nullopt : std::optional(open_step() - 1);
  }
  uint32_t bundles() const override { return static_cast<uint32_t>(plan_.bundles.size()); }
  const ShardOptions& options() const override { return options_; }
  const ShardParameters& replica() const { return *plan_.replica; }
  uint64_t version(uint32_t bundle) const { return publisher_.version(bundle); }

 private:
  using Effects = std::vector<ShardEffect>;

  // The last contribution of one rank to one bundle, and its RESULT.
  struct Latest {
    protocol::Included included;  // The contribution, as results record it.
    uint32_t n = 0;
    float rate = 0;
    uint64_t staleness = 0;
    // The rank's RESULT while it waits. The parameters are added when the RESULT is sent.
    std::unique_ptr<protocol::ExchangeReply> waiting;
    absl::Time waits_since;
  };

  AsyncShard(ShardOptions options, ShardLayout plan);

  Latest& LatestOf(const protocol::ExchangeRequest& exchange) {
    return latest_[exchange.bundle][exchange.sender.rank];
  }
  absl::Status CheckRequest(const protocol::ExchangeRequest& exchange) const;
  void MakePlans(Effects* out);

  void Close(StreamId stream, const protocol::ExchangeRequest& exchange, absl::Time now,
             Effects* out);
  bool PassesGuard(const protocol::ExchangeRequest& exchange, Effects* out);
  absl::Status SumUp(const protocol::ExchangeRequest& exchange);
  void Update(const protocol::ExchangeRequest& exchange, Latest* latest, Effects* out);
  // Returns the RESULT for a request, without record and parameters.
  std::unique_ptr<protocol::ExchangeReply> AnswerTo(
      const protocol::ExchangeRequest& exchange) const;
  void AnswerRequest(StreamId stream, const protocol::ExchangeRequest& exchange, absl::Time now,
                     Effects* out);
  bool MayAnswer(uint32_t bundle, uint64_t step) const;
  void Respond(StreamId stream, const protocol::ExchangeRequest& exchange,
               std::unique_ptr<protocol::ExchangeReply> answer, absl::Time now, Effects* out);
  void AnswerWaiting(uint32_t bundle, absl::Time now, Effects* out);
  void SendNewest(StreamId stream, std::unique_ptr<protocol::ExchangeReply> answer,
                  absl::Duration waited, Effects* out);
  std::vector<uint32_t> PresentRanks() const;
  void PublishBundle(uint32_t bundle, Effects* out);

  // Defined in async_shard_checkpoint.cc.
  void AnnounceCheckpoint(Effects* out);
  void WriteSnapshots(Effects* out);
  std::shared_ptr<const protocol::ShardSnapshot> Snapshot(uint64_t step);
  absl::Status Restore(const protocol::ShardSnapshot& snapshot);

  const ShardOptions options_;
  ShardStats stats_;
  RequestFence gate_;
  ShardLayout plan_;
  ShardThreads threads_;
  ParameterPublisher publisher_;
  PlanSchedule plans_;
  uint64_t next_plan_;  // Shard 0: the next step for which it makes a plan.
  RankClocks clocks_;
  std::vector<std::vector<Latest>> latest_;  // By bundle and rank.
  std::optional<UpdateGuard> guard_;         // Set if the job has a guard.
  std::vector<float> sum_;                   // The contribution that is being applied.
  bool diverged_ = false;                    // The alarm was sent.
  bool members_changed_ = false;  // Results and checkpoints may have waited for ranks that left.
  CheckpointNaming checkpoints_;
};

}  // namespace sluice::server
