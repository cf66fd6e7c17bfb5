// SPDX-License-Identifier: Apache-2.0
// SyncShard: a shard of a job in modes `sync` and `local_sgd`, where every step waits for all ranks
// or for a quorum. With a quorum, a bundle may close before a contribution arrives. The late
// contribution then joins the oldest open step of the same bundle. With membership `elastic`, only
// members count. A newcomer becomes a member at the first step for which it is in time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/shard/bundle_work.h"
#include "server/shard/checkpoint_naming.h"
#include "server/shard/closing_rule.h"
#include "server/shard/open_bundle.h"
#include "server/shard/open_steps.h"
#include "server/shard/plan_schedule.h"
#include "server/shard/rank_table.h"
#include "server/shard/request_fence.h"
#include "server/shard/result_sink.h"
#include "server/shard/shard.h"
#include "server/shard/shard_layout.h"
#include "server/shard/sync_answers.h"

namespace sluice::server {

class SyncShard final : public Shard {
 public:
  static absl::StatusOr<std::unique_ptr<Shard>> Create(ShardOptions options);

  std::vector<ShardEffect> Handle(StreamId stream, protocol::ExchangeRequest exchange,
                                  absl::Time now) override;
  void StreamClosed(StreamId stream) override { gate_.StreamClosed(stream); }
  absl::Status SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) override;
  void ReleaseResults(uint64_t durable_step) override;
  uint64_t results_from() const override;
  std::vector<ShardEffect> End(absl::string_view reason) override {
    return gate_.End(reason, steps_.step());
  }
  std::vector<ShardEffect> Suspend(uint32_t term, absl::string_view reason) override {
    return gate_.Suspend(term, reason, steps_.step());
  }
  uint64_t NameCheckpoint(uint64_t minimum_step) override;
  absl::Status CheckPartStep(uint64_t step) const override {
    return checkpoints_.CheckPartStep(step);
  }
  std::vector<ShardEffect> Publish(const Publication& publication) override;
  std::vector<ShardEffect> Tick(absl::Time now) override;
  void Measured(const StepMeasurements& measured) override { plans_.Measured(measured); }
  absl::Time tick_due() const override;
  std::string FenceReason(const protocol::Sender& sender) const override {
    return gate_.FenceReason(sender);
  }
  ShardStats Stats() const override;
  double ResidualEnergy() const override;
  absl::Span<const float> DownlinkResidual(uint32_t bundle, size_t position) const override;
  uint64_t open_step() const override { return steps_.step(); }
  std::shared_ptr<const protocol::CompressionPlan> plan() const override {
    return plans_.InForce(steps_.step());
  }
  const ShardParameters* parameters() const override { return coder_.parameters(); }
  std::optional<uint64_t> settled_step() const override {
    return coder_.parameters() == nullptr ? std::nullopt : steps_.LastWhole();
  }
  uint32_t bundles() const override { return static_cast<uint32_t>(bundles_.size()); }
  const ShardOptions& options() const override { return options_; }

 private:
  friend class ShardLogPeer;  // Defined in tests/server/shard/shard_log_peer.h.

  using Effects = std::vector<ShardEffect>;

  void AnnounceCheckpoint(Effects* out);
  // Fails unless the snapshot belongs to the same shard and run and to the step to continue from.
  absl::Status Restore(const protocol::ShardSnapshot& snapshot);
  std::shared_ptr<const protocol::ShardSnapshot> Snapshot() const;

  SyncShard(ShardOptions options, ShardLayout plan);

  // Each function checks one part of a request and returns an error that describes the fault.
  absl::Status CheckAddress(const protocol::ExchangeRequest& exchange) const;
  bool HasArrived(const protocol::ExchangeRequest& exchange) const;
  // True if the sender's step is beyond the step that this replaying shard has reached.
  bool IsAhead(const protocol::ExchangeRequest& exchange) const;
  void HandleKeys(StreamId stream, const protocol::ExchangeRequest& exchange, Effects* out);
  void HandleClosed(StreamId stream, protocol::ExchangeRequest exchange, Effects* out);
  ClosingRule::Step OpenStepFacts() const;
  bool IsDue(uint32_t bundle) const;
  void CloseDue(Effects* out);
  void HandleLate(StreamId stream, protocol::ExchangeRequest exchange,
                  const protocol::ExchangeReply& result, Effects* out);
  void AddLate(protocol::ExchangeRequest exchange, uint32_t checksum);
  void CountIn(const protocol::ExchangeRequest& exchange);
  void Admit(StreamId stream, protocol::ExchangeRequest exchange, absl::Time now, Effects* out);
  PlanSchedule::Position PositionOf(const protocol::ExchangeRequest& exchange) const;
  void BecomeMember(uint32_t bundle, uint32_t rank, uint64_t step);
  void Vacate(uint32_t rank);
  bool IsStoodFor(const protocol::ExchangeRequest& exchange) const;
  void AnswerLateJoiner(StreamId stream, const protocol::ExchangeRequest& exchange,
                        const protocol::ExchangeReply& result, Effects* out);
  void CloseComplete(Effects* out);
  void Close(uint32_t bundle, Effects* out);
  std::unique_ptr<OpenBundle> RemoveOpen(uint32_t bundle);
  // Does the work on a bundle of the open step and publishes its result. `given` is the parent
  // job's mean, or null.
  void Conclude(uint32_t bundle, const Publication* given, Effects* out);
  void Forward(uint32_t bundle, Effects* out);
  BundleWork WorkOn(uint32_t bundle, OpenBundle* open) const;
  void AdvanceSteps(Effects* out);
  void ForgetResults();
  bool OverMemory(const protocol::ExchangeRequest& exchange) const;
  // Returns how long the open step has waited.
  absl::Duration Waited(absl::Time now) const;

  const ShardOptions options_;
  uint64_t reserved_bytes_ = 0;  // Bytes for sums and residuals.
  ShardStats stats_;
  RequestFence gate_;
  std::vector<BundleLayout> bundles_;
  RankTable ranks_;
  SyncAnswers answers_;
  BundleCoder coder_;
  PlanSchedule plans_;
  ResultSink sink_;
  OpenSteps steps_;
  bool noticed_ = false;  // Tick has reported late ranks of the open step.
  CheckpointNaming checkpoints_;
  ClosingRule closing_;
  bool members_changed_ = false;  // Waiting bundles may have become complete.
  uint64_t released_step_ = 0;    // The highest step passed to ReleaseResults.
  uint64_t forgotten_step_ = 0;   // The highest step whose results the log was told to forget.
};

}  // namespace sluice::server
