// SPDX-License-Identifier: Apache-2.0
// RemoteSession: a session over gRPC, from Join to its end: its steps, its checkpoints and its
// heartbeats. It has one Exchange stream per shard, a separate connection for heartbeats, and one
// encoder thread. It reopens broken streams and repeats unresolved requests. RemoteClient
// (remote_client.cc) creates it in Join.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "protocol/membership.h"
#include "protocol/tensor_table.h"
#include "sluice/v1/coordinator.pb.h"
#include "worker/core/relay_session.h"
#include "worker/rpc/coordinator_client.h"
#include "worker/rpc/heartbeat.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/remote_session_options.h"
#include "worker/rpc/remote_steps.h"
#include "worker/rpc/session_activity.h"
#include "worker/rpc/session_checkpoints.h"
#include "worker/rpc/weights_publisher.h"

namespace sluice::worker {

// In a job with checkpoints, the loss of a shard or of the coordinator ends the session with a
// RollbackError.
class RemoteSession final : public RelaySession {
 public:
  // `options.clock` must be set. Opens the streams, and starts the encoder's thread and the
  // heartbeats. `coordinator` must outlive the session.
  RemoteSession(const RemoteSessionOptions& options, const protocol::TensorTable& table,
                const Membership& membership, CoordinatorClient* coordinator);

  absl::Status AgreeOnParameters(absl::Span<const absl::Span<float>> parameters) override;
  bool BuffersDue() const override { return steps_.BuffersDue(); }
  std::vector<protocol::TensorPart> PartsDue() const override { return steps_.PartsDue(); }
  bool AcceptsGpuViews() const override { return options_.device != nullptr; }
  absl::Status ApplyOnGpu(absl::Span<const GpuTensor> tensors, void* ready) override {
    return steps_.ApplyOnGpu(tensors, ready);
  }
  absl::Status Submit(uint32_t tensor, const GradientView& gradient) override {
    return steps_.Submit(tensor, gradient);
  }
  absl::Status SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions) override {
    return steps_.SetWeight(shard, bundle, contributions);
  }
  uint32_t Contributions(uint32_t shard, uint32_t bundle) const override {
    return steps_.Contributions(shard, bundle);
  }
  std::shared_ptr<const protocol::CompressionPlan> AnnouncedPlan() const override {
    return steps_.AnnouncedPlan();
  }
  uint64_t named_checkpoint() const override { return steps_.named_checkpoint(); }
  uint64_t durable_step() const override { return steps_.durable_step(); }
  absl::Status Skip() override { return steps_.Skip(); }
  absl::StatusOr<StepResult> Wait() override;
  absl::StatusOr<std::vector<ReadyTensor>> WaitForTensors(absl::Duration limit) override {
    return steps_.WaitForTensors(limit);
  }
  absl::StatusOr<std::optional<StepResult>> WaitFor(absl::Duration limit) override {
    return steps_.WaitFor(limit);
  }
  absl::Status Apply(uint32_t tensor, absl::Span<float> mean) override {
    return steps_.Apply(tensor, mean, ResultUse::kMean);
  }
  absl::Status ApplyScaled(uint32_t tensor, float scale, absl::Span<float> values) override {
    return steps_.Apply(tensor, values, ResultUse::kAddend, scale);
  }
  absl::Status ApplyUpdate(uint32_t tensor, absl::Span<float> parameters) override {
    return steps_.Apply(tensor, parameters, ResultUse::kUpdate);
  }
  void SetRate(float rate) override { steps_.SetRate(rate); }
  void SetWork(const protocol::Work& work) override { steps_.SetWork(work); }
  absl::Status SaveCheckpoint(std::string state, std::vector<CheckpointFile> files) override;
  absl::StatusOr<BundleEncoder*> EncoderBetweenSteps() override {
    return steps_.EncoderBetweenSteps();
  }
  void Report(const Progress& progress) override {
    activity_.Reported(progress, options_.clock->Now());
  }
  void Tested(double accuracy) override { steps_.Tested(accuracy); }
  void ReportParameters(uint64_t step, absl::string_view parameters_sha256) override;
  TrafficCounters traffic() const override { return steps_.traffic(); }
  protocol::StageSeconds stages() const override { return steps_.stages(); }
  std::optional<SessionFigures> figures() const override;
  bool WantsWeights(uint64_t step, bool is_last) const override {
    return publisher_ != nullptr && publisher_->Wants(step, is_last);
  }
  void PublishWeights(uint64_t step, absl::Span<const absl::Span<const float>> parameters,
                      bool is_last) override {
    if (publisher_ != nullptr) publisher_->Offer(step, parameters, is_last);
  }
  absl::Status Leave() override;
  void Abandon(absl::string_view reason) override;

  // The functions below are for RemoteClient.
  RemoteSteps& steps() { return steps_; }
  // Null unless the servers keep the checkpoints.
  StoreClient* store() const { return checkpoints_.store(); }
  // Ends the session, and returns the status that ended it: an earlier failure has precedence.
  // Thread-safe.
  absl::Status Fail(absl::Status status);
  // Until RestoreEnded, heartbeats report that this worker is reading the checkpoint that it starts
  // from, and why the last attempt failed.
  void RestoreFails(absl::string_view why) { activity_.RestoreFailed(why); }
  void RestoreEnded() { activity_.RestoreEnded(options_.clock->Now()); }

 private:
  absl::Status CheckValues(absl::Span<const absl::Span<float>> parameters) const;
  // Waits until the state passed to SaveCheckpoint is written and reported. Returns false after
  // `limit`.
  bool FinishCheckpoints(absl::Duration limit);
  v1::LeaveRequest MakeLeaveRequest(bool finished, absl::string_view reason) const;
  protocol::WorkerHeartbeat ComposeHeartbeat() const;
  void HeartbeatFailed(absl::Status status);
  absl::Status LeaveFailed(absl::Status status) const;
  // True if the job has removed this worker. A removed worker that is still alive joins again as a
  // new one.
  bool WasRemoved(const absl::Status& status) const;

  const RemoteSessionOptions options_;
  const protocol::TensorTable table_;
  CoordinatorClient* const coordinator_;
  const protocol::Sender sender_;
  const absl::Duration heartbeat_interval_;
  const uint32_t giver_;  // The rank whose initial parameters all ranks get.
  bool agreed_;           // All ranks have the same parameters, or have agreed on them.
  SessionActivity activity_;
  SessionCheckpoints checkpoints_;
  RemoteSteps steps_;                                  // Uses all of the above.
  const std::unique_ptr<WeightsPublisher> publisher_;  // Null unless this worker publishes.
  Heartbeat heartbeat_;                                // Calls this object from its thread.
};

}  // namespace sluice::worker
