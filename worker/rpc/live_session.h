// LiveSession: what a session is made of between Join and its end: pipeline, encoder strand,
// streams and heartbeats, and the one lock that they meet under. remote_session.h is its public
// face.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "protocol/stage_times.h"
#include "worker/core/bundle_encoder.h"
#include "worker/core/pipeline.h"
#include "worker/core/step_clock.h"
#include "worker/rpc/checkpoint_writer.h"
#include "worker/rpc/heartbeat.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/remote_session.h"
#include "worker/rpc/shard_stream.h"
#include "worker/rpc/store_client.h"

namespace sluice::worker {

// Methods as in Session. The first error is kept and every later call returns it. In a job with
// checkpoints, having lost a shard or the coordinator is a RollbackError.
class LiveSession final : public ShardStream::Events {
 public:
  // `options.clock` is set. Opens the streams and starts both threads.
  LiveSession(const RemoteSessionOptions& options, const protocol::TensorTable& table,
              const Membership& membership);
  ~LiveSession() override;

  bool BuffersDue() const;
  absl::Status Submit(uint32_t tensor, const GradientView& gradient);
  absl::Status SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions);
  uint32_t Contributions(uint32_t shard, uint32_t bundle) const;
  uint64_t named_checkpoint() const;
  uint64_t durable_step() const;
  absl::Status Skip();
  absl::StatusOr<StepResult> Wait();
  absl::Status Apply(uint32_t tensor, absl::Span<float> mean);
  absl::Status ApplyScaled(uint32_t tensor, float scale, absl::Span<float> values);
  absl::Status ApplyUpdate(uint32_t tensor, absl::Span<float> parameters);
  absl::Status ApplyOnGpu(absl::Span<const GpuTensor> tensors, void* ready);
  void SetRate(float rate);
  absl::Status SaveCheckpoint(std::string state, std::vector<CheckpointFile> files);
  // Before the first step.
  absl::Status Restore(const compress::SavedCompressor& uplink) {
    return encoder_.Restore(uplink, options_.makes_plans);
  }
  // Likewise: those that Join or a checkpoint brings. INVALID_ARGUMENT: as Pipeline::SetPlans.
  absl::Status SetPlans(const std::vector<protocol::CompressionPlan>& plans);
  // Until what SaveCheckpoint took is written and reported. False: it takes longer than `limit`.
  bool FinishCheckpoints(absl::Duration limit);
  // Heartbeats say that it reads the checkpoint that it begins with, and why the last try failed;
  // until RestoreEnded.
  void RestoreFails(absl::string_view why);
  void RestoreEnded();
  // False: the session ended meanwhile.
  bool SleepFor(absl::Duration duration);
  // Null unless checkpoints are kept by the servers.
  StoreClient* store() const { return store_.get(); }
  void Report(const Progress& progress);
  void Tested(double accuracy);
  void ReportParameters(uint64_t step, absl::string_view parameters_sha256);
  TrafficCounters traffic() const;
  protocol::StageSeconds stages() const { return stages_.Seconds(); }
  SessionFigures figures() const;

  // From here on nothing that streams do is an error, but for a job that has gone back and a shard
  // that was started again and closes something differently. Where what was sent is kept, streams
  // go on: such a shard may need it. FAILED_PRECONDITION: a step is open.
  absl::Status BeginLeaving();
  // The last heartbeat's content, for Leave.
  v1::HeartbeatRequest LastWords();
  absl::Status status() const;
  void Fail(absl::Status status);

 private:
  struct ShardLink {
    std::unique_ptr<ShardStream> stream;
    absl::Time silent_since;                // InfiniteFuture: it is there.
    std::string trouble = "no connection";  // The last; for a person.
    bool told = false;                      // The log knows of the trouble.
    absl::Duration backoff;
    absl::Time reopen_at = absl::InfiniteFuture();
    absl::Time retry_at = absl::InfiniteFuture();
    uint64_t server_incarnation = 0;  // The highest that answered.
    uint64_t told_incarnation = 0;    // The highest that the coordinator named.
    bool outdated = false;            // One below them answered last.
    bool moves = false;               // The stream is cut for a newer one, which is elsewhere.
    uint64_t newest() const { return std::max(server_incarnation, told_incarnation); }
  };

  void OnStreamUp(uint32_t shard) override;
  void OnReply(uint32_t shard, v1::ExchangeReply* reply) override;
  void OnStreamDown(uint32_t shard, const grpc::Status& status) override;

  void StreamIsUp(uint32_t shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Leaves a process of the shard that another took the place of.
  void LeaveFor(uint32_t shard, const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Follow(const v1::ShardAddress& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Under the lock, so that order is fixed; Flush afterwards, when it is free.
  void CarryOut(const Pipeline::Effects& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Flush(const Pipeline::Effects& effects);
  // `times`: of a step that it has ended, but step 0.
  absl::StatusOr<StepResult> WaitForStep(std::optional<protocol::LinkReport>* times);
  absl::Status BeginStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MayApply() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MayTake(bool update) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Applied(absl::Time started, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FailLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Lost(absl::Status status) const;
  void ReportNotSaved(absl::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Unreachable(uint32_t shard) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeStrand() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Heard(const v1::HeartbeatReply& reply);
  v1::HeartbeatRequest ComposeHeartbeat();
  void AddWait(v1::HeartbeatRequest* request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t DenseBytes(const TrafficCounters& counters) const {
    return counters.steps * sizeof(float) * protocol::TrainedElements(table_);
  }
  // Where there is a trace: the step that ended with a Wait, and what the training thread did in
  // it.
  void TraceStep(absl::Time wait_began, absl::Time ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndDecoding() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TraceDecoding(absl::Time began, absl::Time ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of what is sent and of the end of a step.
  void TimeExchange(const SendExchange* sent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void RunStrand();
  bool EncodeNext();
  EncodedBundle Encode(const EncodeTask& task);
  bool ServeTimers();
  void ServeShard(uint32_t shard, absl::Time now, Pipeline::Effects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Time NextTimer() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RemoteSessionOptions options_;
  const absl::Duration patience_;  // With a shard that cannot be reached.
  const Clock& clock_;
  const protocol::TensorTable table_;
  const Membership membership_;
  protocol::StageTimes stages_;
  BundleEncoder encoder_;  // The strand's while a step is open, else the caller's.
  // By shard. The streams are set once; the rest is guarded by mutex_.
  std::vector<ShardLink> links_;

  mutable Mutex mutex_;
  CondVar
      step_changed_;  // A step is done, the session failed, or the strand let go of the gradients.
  CondVar strand_wake_;
  Pipeline pipeline_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;  // A step, not waited for yet.
  bool has_result_ ABSL_GUARDED_BY(mutex_) = false;
  bool save_due_ ABSL_GUARDED_BY(mutex_) = false;      // Until SaveCheckpoint.
  bool strand_asked_ ABSL_GUARDED_BY(mutex_) = false;  // To look for work again.
  bool encoding_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t restoring_step_ ABSL_GUARDED_BY(mutex_);  // 0: it has restored.
  absl::Time restoring_since_ ABSL_GUARDED_BY(mutex_);
  std::string restore_trouble_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  TrafficCounters counters_ ABSL_GUARDED_BY(mutex_);  // Without bytes; the streams count those.
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Time reported_ ABSL_GUARDED_BY(mutex_);  // When progress_ was.
  uint64_t skipped_bundles_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time last_progress_ ABSL_GUARDED_BY(mutex_);  // A call of the program, or its end.
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;      // For others, or for the disk.
  StepClock step_clock_ ABSL_GUARDED_BY(mutex_);      // Of steps with an exchange; not step 0.
  std::optional<absl::Time> exchange_began_ ABSL_GUARDED_BY(mutex_);  // Of the open step.
  DurationHistogram exchanges_ ABSL_GUARDED_BY(mutex_);
  absl::Time step_began_ ABSL_GUARDED_BY(mutex_);      // For traces: where the last step ended.
  absl::Time decoding_began_ ABSL_GUARDED_BY(mutex_);  // Likewise: calls that follow each other...
  absl::Time decoding_ended_ ABSL_GUARDED_BY(mutex_);  // ...are one span.
  std::optional<CodingQuality> quality_ ABSL_GUARDED_BY(mutex_);
  uint64_t hash_step_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string parameters_sha256_ ABSL_GUARDED_BY(mutex_);

  std::thread strand_;
  std::unique_ptr<Heartbeat> heartbeat_;
  const std::unique_ptr<StoreClient> store_;
  const std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace sluice::worker
