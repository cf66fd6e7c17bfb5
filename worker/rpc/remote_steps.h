// SPDX-License-Identifier: Apache-2.0
// RemoteSteps: the steps of a joined session. It takes gradients, encodes them on its own thread,
// exchanges them with the shards, and hands out the results. It has the pipeline, the streams, the
// session's first error, and the lock that they share.
//
// remote_steps_wait.cc waits for results and applies them, remote_steps_encoder.cc runs on other
// threads than the caller's, and remote_steps.cc has the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "protocol/exchange.h"
#include "protocol/membership.h"
#include "protocol/snapshot.h"
#include "protocol/stage_times.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/pipeline.h"
#include "worker/core/result_applier.h"
#include "worker/core/session.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/remote_session_options.h"
#include "worker/rpc/session_activity.h"
#include "worker/rpc/session_checkpoints.h"
#include "worker/rpc/session_times.h"
#include "worker/rpc/shard_links.h"
#include "worker/rpc/shard_stream.h"
#include "worker/rpc/strand.h"

namespace sluice::worker {

// The methods work as in Session and RelaySession, unless their comments say otherwise. The first
// error is final, and every later call returns it.
class RemoteSteps final : private ShardStream::Events {
 public:
  // Opens the streams and starts the encoder's thread. `options`, `checkpoints` and `activity` must
  // outlive this object, and `options.clock` must be set.
  RemoteSteps(const RemoteSessionOptions& options, const protocol::TensorTable& table,
              const Membership& membership, SessionCheckpoints* checkpoints,
              SessionActivity* activity);
  ~RemoteSteps() override;

  // Call these two before the first step. SetPlans takes the plans from Join or a checkpoint. It
  // fails with INVALID_ARGUMENT as Pipeline::SetPlans does.
  absl::Status Restore(const compress::SavedCompressor& uplink) {
    return encoder_.Restore(uplink, options_.exchange.control.makes_plans());
  }
  absl::Status SetPlans(const std::vector<protocol::CompressionPlan>& plans);

  bool BuffersDue() const;
  std::vector<protocol::TensorPart> PartsDue() const;
  absl::Status Submit(uint32_t tensor, const GradientView& gradient);
  absl::Status SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions);
  uint32_t Contributions(uint32_t shard, uint32_t bundle) const;
  protocol::PlanHistory::Plan AnnouncedPlan() const;
  uint64_t named_checkpoint() const;
  uint64_t durable_step() const;
  absl::Status Skip();
  void SetRate(float rate);
  void SetWork(const protocol::Work& work);
  absl::StatusOr<std::optional<StepResult>> WaitFor(absl::Duration limit);
  absl::StatusOr<std::vector<ReadyTensor>> WaitForTensors(absl::Duration limit);
  // Session's Apply, ApplyScaled and ApplyUpdate. Only an addend has a scale.
  absl::Status Apply(uint32_t tensor, absl::Span<float> values, ResultUse use, float scale = 1);
  absl::Status ApplyOnGpu(absl::Span<const GpuTensor> tensors, void* ready);
  absl::StatusOr<BundleEncoder*> EncoderBetweenSteps();
  // Returns the state of the session for the checkpoint that is due, without the program's state.
  absl::StatusOr<protocol::WorkerSnapshot> SnapshotWhenDue();
  void Tested(double accuracy);

  // Takes what the coordinator says about the job.
  void Follow(const protocol::JobState& job);
  // Returns false if the session ended meanwhile.
  bool SleepFor(absl::Duration duration);
  // After this call, only a rollback, or a restarted shard that closes a bundle differently, causes
  // an error. If contributions are kept for replay, streams continue, because a restarted shard may
  // need the contributions. Fails with FAILED_PRECONDITION if a step is open.
  absl::Status BeginLeaving();
  absl::Status status() const;
  // Ends the session with this error, unless it has ended or is leaving.
  void Fail(absl::Status status);

  TrafficCounters traffic() const;
  protocol::StageSeconds stages() const { return stages_.Seconds(); }
  // These two set the fields about traffic, times and streams.
  void FillHeartbeat(protocol::WorkerHeartbeat* heartbeat) const;
  void FillFigures(SessionFigures* figures) const;

 private:
  void OnStreamUp(uint32_t shard) override;
  void OnReply(uint32_t shard, v1::ExchangeReply* reply) override;
  void OnStreamDown(uint32_t shard, const grpc::Status& status) override;

  // Runs under the lock to fix the order of messages. Call Flush afterwards, without the lock.
  void CarryOut(const Pipeline::Effects& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CarryOut(const SendExchange& send) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CarryOut(const PipelineFailed& failed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Flush(const Pipeline::Effects& effects);
  // Sets `*times` for a step that ended, except step 0.
  absl::StatusOr<std::optional<StepResult>> WaitForStep(absl::Duration limit,
                                                        std::optional<protocol::LinkReport>* times);
  absl::Status BeginStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails the session if the caller must not wait yet.
  void CheckMayWait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<ResultPart>> Results(uint32_t tensor, size_t elements,
                                                  ResultUse use) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MayApply(uint32_t tensor, ResultUse use) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Applied(absl::Time started, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FailLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns true if the session exchanges nothing more: it has failed, it is being destroyed, or it
  // is leaving and keeps no contributions for a replay.
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TrafficCounters TrafficLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t DenseBytes(uint64_t steps) const {
    const uint32_t fragments = options_.exchange.compression.layout.fragments;
    return steps * sizeof(float) * protocol::TrainedElements(table_) / fragments;
  }

  // These run on the encoder thread. RunEncoder returns when it has to run again.
  absl::Time RunEncoder();
  bool EncodeNext();
  bool ServeLinks();
  absl::Time NextLinkDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RemoteSessionOptions& options_;
  const Clock& clock_;
  const protocol::TensorTable table_;
  const protocol::Sender sender_;
  SessionCheckpoints& checkpoints_;
  SessionActivity& activity_;
  protocol::StageTimes stages_;
  // Used by the encoder thread while a step is open, otherwise by the caller.
  BundleEncoder encoder_;
  ResultApplier applier_;
  ShardStreams streams_;

  mutable Mutex mutex_;
  // Signaled when a step is done, the session fails, the encoder thread releases the gradients, or
  // results arrive that WaitForTensors waits for.
  CondVar step_changed_;
  Pipeline pipeline_ ABSL_GUARDED_BY(mutex_);
  ShardLinks links_ ABSL_GUARDED_BY(mutex_);
  SessionTimes times_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;  // A step began, and Wait has not ended it.
  bool has_result_ ABSL_GUARDED_BY(mutex_) = false;
  bool awaits_tensors_ ABSL_GUARDED_BY(mutex_) = false;  // A thread is in WaitForTensors.
  bool encoding_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // The encoder thread. It also serves the links when it is time.
  Strand strand_;
};

}  // namespace sluice::worker
