// JoinedSession: a session from Join to its end. It has the pipeline, the encoder thread, the
// streams, the heartbeats, and the lock that they share. remote_session.h has the public interface.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "protocol/membership.h"
#include "protocol/stage_times.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/pipeline.h"
#include "worker/rpc/checkpoint_writer.h"
#include "worker/rpc/heartbeat.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/remote_session_options.h"
#include "worker/rpc/session_times.h"
#include "worker/rpc/shard_stream.h"
#include "worker/rpc/store_client.h"

namespace sluice::worker {

// The methods work as in Session. The session keeps the first error, and every later call returns
// it. In a job with checkpoints, the loss of a shard or of the coordinator is a RollbackError.
class JoinedSession final : public ShardStream::Events {
 public:
  // `options.clock` must be set. Opens the streams and starts both threads.
  JoinedSession(const RemoteSessionOptions& options, const protocol::TensorTable& table,
                const Membership& membership);
  ~JoinedSession() override;

  bool BuffersDue() const;
  absl::Status Submit(uint32_t tensor, const GradientView& gradient);
  absl::Status SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions);
  uint32_t Contributions(uint32_t shard, uint32_t bundle) const;
  uint64_t named_checkpoint() const;
  uint64_t durable_step() const;
  absl::Status Skip();
  absl::StatusOr<std::optional<StepResult>> WaitFor(absl::Duration limit);
  absl::StatusOr<std::vector<ReadyTensor>> WaitForTensors(absl::Duration limit);
  // Session's Apply, ApplyScaled and ApplyUpdate. Only an addend has a scale.
  absl::Status Apply(uint32_t tensor, absl::Span<float> values, ResultUse use, float scale = 1);
  absl::Status ApplyOnGpu(absl::Span<const GpuTensor> tensors, void* ready);
  void SetRate(float rate);
  absl::StatusOr<BundleEncoder*> EncoderBetweenSteps();
  absl::Status SaveCheckpoint(std::string state, std::vector<CheckpointFile> files);
  // Call this before the first step.
  absl::Status Restore(const compress::SavedCompressor& uplink) {
    return encoder_.Restore(uplink, options_.makes_plans);
  }
  // Call this before the first step, with the plans from Join or a checkpoint. Fails with
  // INVALID_ARGUMENT as Pipeline::SetPlans does.
  absl::Status SetPlans(const std::vector<protocol::CompressionPlan>& plans);
  // Waits until the state passed to SaveCheckpoint is written and reported. Returns false after
  // `limit`.
  bool FinishCheckpoints(absl::Duration limit);
  // Until RestoreEnded, heartbeats report that this worker is reading the checkpoint that it starts
  // from, and why the last attempt failed.
  void RestoreFails(absl::string_view why);
  void RestoreEnded();
  // Returns false if the session ended meanwhile.
  bool SleepFor(absl::Duration duration);
  // Null unless the servers keep the checkpoints.
  StoreClient* store() const { return store_.get(); }
  void Report(const Progress& progress);
  void Tested(double accuracy);
  void ReportParameters(uint64_t step, absl::string_view parameters_sha256);
  TrafficCounters traffic() const;
  protocol::StageSeconds stages() const { return stages_.Seconds(); }
  SessionFigures figures() const;

  // After this call, only a rollback, or a restarted shard that closes a bundle differently, causes
  // an error. If contributions are kept for replay, streams continue, because a restarted shard may
  // need the contributions. Fails with FAILED_PRECONDITION if a step is open.
  absl::Status BeginLeaving();
  // Returns the content of the last heartbeat, for Leave.
  protocol::WorkerHeartbeat LastWords();
  absl::Status status() const;
  void Fail(absl::Status status);

 private:
  struct ShardLink {
    std::unique_ptr<ShardStream> stream;
    absl::Time silent_since;                // InfiniteFuture while the shard answers.
    std::string trouble = "no connection";  // The last problem, for messages.
    bool told = false;                      // The problem was logged.
    absl::Duration backoff;
    absl::Time reopen_at = absl::InfiniteFuture();
    absl::Time retry_at = absl::InfiniteFuture();
    uint64_t server_incarnation = 0;  // The highest that answered on this link.
    uint64_t told_incarnation = 0;    // The highest from the coordinator.
    bool outdated = false;            // The last answer had a lower incarnation.
    bool moves = false;               // The stream was cut to connect to a newer process.
    uint64_t newest() const { return std::max(server_incarnation, told_incarnation); }
  };

  void OnStreamUp(uint32_t shard) override;
  void OnReply(uint32_t shard, v1::ExchangeReply* reply) override;
  void OnStreamDown(uint32_t shard, const grpc::Status& status) override;

  void StreamIsUp(uint32_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Disconnects from a replaced process of the shard, and connects to `address`.
  void LeaveFor(uint32_t shard, const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Follow(const protocol::ShardPlace& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs under the lock to fix the order of messages. Call Flush afterwards, without the lock.
  void CarryOut(const Pipeline::Effects& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  absl::Status Lost(absl::Status status) const;
  void ReportNotSaved(absl::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Unreachable(uint32_t shard) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeStrand() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnHeartbeatReply(const protocol::HeartbeatReply& answer);
  protocol::WorkerHeartbeat ComposeHeartbeat();
  protocol::DiskWait WaitForDisk() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t DenseBytes(const TrafficCounters& counters) const {
    return counters.steps * sizeof(float) * protocol::TrainedElements(table_);
  }

  void RunEncoder();
  bool EncodeNext();
  EncodedBundle Encode(const EncodeTask& task);
  bool ServeTimers();
  void ServeShard(uint32_t shard, absl::Time now, Pipeline::Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Time NextTimer() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RemoteSessionOptions options_;
  const absl::Duration patience_;  // How long to retry an unreachable shard.
  const Clock& clock_;
  const protocol::TensorTable table_;
  const Membership membership_;
  protocol::StageTimes stages_;
  // Used by the encoder thread while a step is open, otherwise by the caller.
  BundleEncoder encoder_;
  // By shard. The streams are set once; mutex_ guards the rest.
  std::vector<ShardLink> links_;

  mutable Mutex mutex_;
  // Signaled when a step is done, the session fails, the encoder thread releases the gradients, or
  // results arrive that WaitForTensors waits for.
  CondVar step_changed_;
  CondVar encoder_wake_;
  Pipeline pipeline_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;  // A step began, and Wait has not ended it.
  bool has_result_ ABSL_GUARDED_BY(mutex_) = false;
  bool awaits_tensors_ ABSL_GUARDED_BY(mutex_) = false;  // A thread is in WaitForTensors.
  bool save_due_ ABSL_GUARDED_BY(mutex_) = false;       // A checkpoint is due until SaveCheckpoint.
  bool encoder_asked_ ABSL_GUARDED_BY(mutex_) = false;  // The encoder should look for work.
  bool encoding_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t restoring_step_ ABSL_GUARDED_BY(mutex_);  // 0 once restored.
  absl::Time restoring_since_ ABSL_GUARDED_BY(mutex_);
  std::string restore_trouble_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Time reported_ ABSL_GUARDED_BY(mutex_);  // When progress_ was reported.
  uint64_t skipped_bundles_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time last_progress_ ABSL_GUARDED_BY(mutex_);  // Begin or end of the last call.
  std::optional<absl::Time> waiting_since_ ABSL_GUARDED_BY(mutex_);  // For processes or disks.
  SessionTimes times_ ABSL_GUARDED_BY(mutex_);
  std::optional<CodingQuality> quality_ ABSL_GUARDED_BY(mutex_);
  uint64_t hash_step_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string parameters_sha256_ ABSL_GUARDED_BY(mutex_);

  std::thread encoder_thread_;
  std::unique_ptr<Heartbeat> heartbeat_;
  const std::unique_ptr<StoreClient> store_;
  const std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace sluice::worker
