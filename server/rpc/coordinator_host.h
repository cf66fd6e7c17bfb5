// CoordinatorHost: runs the coordinator's core behind one lock. It also holds the calls that wait
// for the core, the shards' control streams, and the threads that tick and write. The host writes
// to disk without the lock and delays the effects that follow a write until the write is done.
// Therefore nothing is announced before it is on disk, and a slow disk delays no heartbeat. The
// host retries a failed write of the run record until the write succeeds or the job ends; until
// then the membership does not change. Thread-safe.
#pragma once

#include <grpcpp/support/status.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/mutex.h"
#include "server/control/plan_log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_history.h"
#include "server/coordinator/job_report.h"
#include "server/rpc/parent_job.h"
#include "server/rpc/queued_stream.h"
#include "server/rpc/run_folder.h"
#include "sluice/v1/shard_control.pb.h"

namespace sluice::server {

using ControlOutput = QueuedStream<v1::ShardReport, v1::ShardCommand>;

// A Join call that waits for an answer. It is answered at most once, with the host's lock held.
class JoinWaiter {
 public:
  virtual ~JoinWaiter() = default;
  virtual void Answer(const absl::StatusOr<protocol::JoinGrant>& grant) = 0;
};

// Receives the step of the durable checkpoint, or the reason why there is none. Called at most
// once, with the host's lock held.
using CheckpointAnswer = std::function<void(const absl::StatusOr<uint64_t>&)>;

class CoordinatorHost {
 public:
  // `folder` is null if the job has no checkpoints. `upper` is not owned; it is null unless the job
  // belongs to a rack.
  CoordinatorHost(CoordinatorOptions options, std::unique_ptr<RunFolder> folder, ParentJob* upper,
                  const Clock* clock, Logger logger);
  ~CoordinatorHost();

  // `waiter` must stay valid until it is answered or JoinCancelled has returned for its token.
  JoinToken Join(JoinWaiter* waiter, protocol::WorkerJoin join);
  // Forgets the waiter and returns true. Returns false if the waiter was already answered.
  bool JoinCancelled(JoinToken token);
  absl::StatusOr<protocol::JobState> Heartbeat(const protocol::WorkerHeartbeat& heartbeat);
  absl::StatusOr<protocol::JobState> Leave(const protocol::WorkerLeave& leave);
  absl::Status WorkerPart(const protocol::Sender& sender, const protocol::CheckpointPart& part);
  CheckpointToken RequestCheckpoint(CheckpointAnswer answer);
  // Forgets the answer and returns true. Returns false if the answer was already given.
  bool RequestCancelled(CheckpointToken token);

  // `output` must stay valid until ShardGone.
  ControlStreamId Open(ControlOutput* output);
  // Calls Coordinator::NumberShard. Fails with UNAVAILABLE while a record is not on disk yet.
  absl::StatusOr<uint64_t> NumberShard();
  void ShardArrived(ControlStreamId stream, const protocol::ShardArrival& arrival);
  void ShardHealth(ControlStreamId stream, const protocol::ShardHealthReport& health);
  void ShardAcknowledged(ControlStreamId stream, uint64_t sequence);
  void ShardFailed(ControlStreamId stream, absl::string_view reason);
  void ShardPart(ControlStreamId stream, const protocol::CheckpointPart& part);
  void ShardNamedCheckpoint(ControlStreamId stream, uint64_t step);
  void ShardNotReproducible(ControlStreamId stream, uint32_t rank, absl::string_view reason);
  void ShardGone(ControlStreamId stream);

  // Reports a plan that shard 0, which is in this process, made or began with.
  void PlanMade(const protocol::CompressionPlan& plan, std::optional<PlanBytes> bytes);
  // For racks; see the Coordinator's methods of the same names.
  void StartRackTerm(uint32_t term, uint64_t restore_step, bool parameters_agree);
  void ParentLost(uint32_t term, absl::string_view cause);
  void FinishParent(uint32_t term);
  void ReleaseCheckpoints(uint64_t durable_step);
  bool HasCheckpoint(uint64_t step) const;
  std::optional<absl::Status> CheckpointOutcome(uint64_t step) const;

  void Fail(absl::string_view reason);
  // True if the job has ended and all present parties know that.
  bool Drained() const;
  bool AnyToldEnd() const;
  JobStatus Status() const;
  JobReport Report() const;
  uint64_t incarnation() const { return incarnation_; }

 private:
  // The disk operation that the writer thread is performing.
  struct OwnWait {
    std::string what;  // A readable description; empty if there is no operation.
    absl::Time since;
    std::string trouble{};                          // Why the last attempt failed.
    absl::StatusCode code = absl::StatusCode::kOk;  // Code of the last failure.
  };

  void RunTicks();
  void RunWrites();
  // Delivers effects in order, after all effects that are already waiting. Blocks the caller if too
  // many are waiting.
  void Deliver(Coordinator::Effects effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(Coordinator::Effects effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries out effects up to the next one that needs a disk write.
  void CarryOutWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CarryOut(const CoordinatorEffect& effect) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Performs the first waiting effect, which must need a disk write. Releases the lock during the
  // write.
  void WriteFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(const CoordinatorEffect& effect) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Written(const CoordinatorEffect& effect, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns true if the job cannot continue until the effect is on disk.
  bool MustBeWritten(const CoordinatorEffect& effect) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReportUnwritten(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PauseWriting(const CoordinatorEffect& effect, absl::Duration pause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Persisted(const protocol::RunRecord& record, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropUnannounced(absl::string_view reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns `state`. While a record that `state` depends on is not on disk, returns the last
  // announced state instead.
  absl::StatusOr<protocol::JobState> Announced(absl::StatusOr<protocol::JobState> state,
                                               const protocol::Sender& sender)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobStatus StatusNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogRefusal(const LogFields& kind, absl::string_view text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration tick_;
  const absl::Duration silence_;  // A live process reports more often than this.
  const Clock* const clock_;
  const Logger logger_;
  const std::unique_ptr<RunFolder> folder_;
  ParentJob* const upper_;
  mutable Mutex mutex_;
  CondVar stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool end_logged_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, LogLimit> refusals_ ABSL_GUARDED_BY(mutex_);  // By event.
  std::deque<CoordinatorEffect> waiting_ ABSL_GUARDED_BY(mutex_);
  CondVar waiting_changed_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;   // The first effect is being written to disk.
  OwnWait disk_wait_ ABSL_GUARDED_BY(mutex_);      // Describes the current write.
  size_t persisting_ ABSL_GUARDED_BY(mutex_) = 0;  // Number of PersistRun effects that wait.
  JobHistory history_ ABSL_GUARDED_BY(mutex_);
  PlanLog plans_ ABSL_GUARDED_BY(mutex_);
  protocol::JobState announced_ ABSL_GUARDED_BY(mutex_);  // State before the effects that wait.
  Coordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  const uint64_t incarnation_;  // Incarnation of the coordinator.
  std::map<JoinToken, JoinWaiter*> waiters_ ABSL_GUARDED_BY(mutex_);
  std::map<CheckpointToken, CheckpointAnswer> requests_ ABSL_GUARDED_BY(mutex_);
  std::map<ControlStreamId, ControlOutput*> outputs_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread ticker_;
  std::thread writer_;
};

}  // namespace sluice::server
