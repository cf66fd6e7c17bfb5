// CoordinatorHost: the coordinator's core behind one lock, with the calls that wait for it, the
// shards' control streams and the threads that tick and write. What the core wants on disk is
// written without the lock, and what follows in the order of its effects waits for it: nothing is
// announced that is not there, and a slow disk holds up no heartbeat. A record of the run that
// cannot be written is tried again until it is or the job ends; meanwhile the membership stays as
// it is. Thread-safe.
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
#include "server/rpc/queued_stream.h"
#include "server/rpc/run_folder.h"
#include "server/rpc/upper_side.h"
#include "sluice/v1/shard_control.pb.h"

namespace sluice::server {

using ControlOutput = QueuedStream<v1::ShardReport, v1::ShardCommand>;

// A Join call that waits. Answered at most once, with the host's lock held.
class JoinWaiter {
 public:
  virtual ~JoinWaiter() = default;
  virtual void Answer(const absl::StatusOr<JoinGrant>& grant) = 0;
};

// The step of a checkpoint that is durable, or why there is none. Called at most once, with the
// host's lock held.
using CheckpointAnswer = std::function<void(const absl::StatusOr<uint64_t>&)>;

class CoordinatorHost {
 public:
  // `folder`: of a job with checkpoints, else null. `upper`: of a rack, else null; not owned.
  CoordinatorHost(CoordinatorOptions options, std::unique_ptr<RunFolder> folder, UpperSide* upper,
                  const Clock* clock, Logger logger);
  ~CoordinatorHost();

  // `waiter` must stay until it was answered or its token was given to JoinCancelled.
  JoinToken Join(JoinWaiter* waiter, WorkerJoin join);
  // True: the waiter is forgotten. False: it was answered before.
  bool JoinCancelled(JoinToken token);
  absl::StatusOr<JobState> Heartbeat(const WorkerHeartbeat& heartbeat);
  absl::StatusOr<JobState> Leave(const WorkerLeave& leave);
  absl::Status WorkerPart(const protocol::Sender& sender, const protocol::CheckpointPart& part);
  CheckpointToken RequestCheckpoint(CheckpointAnswer answer);
  // True: the answer is forgotten. False: it was given before.
  bool RequestCancelled(CheckpointToken token);

  // `output` must stay until ShardGone.
  ControlStreamId Open(ControlOutput* output);
  // As Coordinator::NumberShard. UNAVAILABLE: the disk is behind.
  absl::StatusOr<uint64_t> NumberShard();
  void ShardArrived(ControlStreamId stream, const ShardArrival& arrival);
  void ShardHealth(ControlStreamId stream, const ShardHealthReport& health);
  void ShardAcknowledged(ControlStreamId stream, uint64_t sequence);
  void ShardFailed(ControlStreamId stream, absl::string_view reason);
  void ShardPart(ControlStreamId stream, const protocol::CheckpointPart& part);
  void ShardNamedCheckpoint(ControlStreamId stream, uint64_t step);
  void ShardNotReproducible(ControlStreamId stream, uint32_t rank, absl::string_view reason);
  void ShardGone(ControlStreamId stream);

  // Shard 0, which is in this process, made a plan, or begins with it.
  void PlanMade(const protocol::CompressionPlan& plan, std::optional<PlanBytes> bytes);
  // Of a rack: as the Coordinator has them.
  void BeginTerm(uint32_t term, uint64_t restore_step, bool parameters_agree);
  void AboveLost(uint32_t term, absl::string_view cause);
  void FinishAbove(uint32_t term);
  void ReleaseCheckpoints(uint64_t durable_step);
  bool HasCheckpoint(uint64_t step) const;
  std::optional<absl::Status> CheckpointOutcome(uint64_t step) const;

  void Fail(absl::string_view reason);
  // The job has ended and who is there knows it.
  bool Drained() const;
  bool AnyToldEnd() const;
  JobStatus Status() const;
  JobReport Report() const;
  uint64_t incarnation() const { return incarnation_; }

 private:
  // What the writer's thread does with the disk now.
  struct OwnWait {
    std::string what;  // For a person; empty: nothing.
    absl::Time since;
    std::string trouble{};                          // Why the last try failed.
    absl::StatusCode code = absl::StatusCode::kOk;  // Of that.
  };

  void RunTicks();
  void RunWrites();
  // In order, and after all that wait already. When too many wait, so does the caller.
  void Deliver(Coordinator::Effects effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(Coordinator::Effects effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Up to the next that is for the disk.
  void CarryOutWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CarryOut(const CoordinatorEffect& effect) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first that waits, which is for the disk. Lets go of the lock meanwhile.
  void WriteFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(const CoordinatorEffect& effect) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Written(const CoordinatorEffect& effect, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job cannot go on without it on disk.
  bool MustBeWritten(const CoordinatorEffect& effect) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellUnwritten(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PauseWriting(const CoordinatorEffect& effect, absl::Duration pause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Persisted(const protocol::RunRecord& record, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropUnannounced(absl::string_view reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `state`, or, while what it rests on is not on disk, what was so before.
  absl::StatusOr<JobState> Announced(absl::StatusOr<JobState> state, const protocol::Sender& sender)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobStatus StatusNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogRefusal(const LogFields& kind, absl::string_view text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration tick_;
  const absl::Duration silence_;  // A process that lives says something sooner.
  const Clock* const clock_;
  const Logger logger_;
  const std::unique_ptr<RunFolder> folder_;
  UpperSide* const upper_;
  mutable Mutex mutex_;
  CondVar stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool end_logged_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, LogLimit> refusals_ ABSL_GUARDED_BY(mutex_);  // By event.
  std::deque<CoordinatorEffect> waiting_ ABSL_GUARDED_BY(mutex_);
  CondVar waiting_changed_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;   // The first that waited.
  OwnWait disk_wait_ ABSL_GUARDED_BY(mutex_);      // For that.
  size_t persisting_ ABSL_GUARDED_BY(mutex_) = 0;  // PersistRun effects that wait.
  JobHistory history_ ABSL_GUARDED_BY(mutex_);
  PlanLog plans_ ABSL_GUARDED_BY(mutex_);
  JobState announced_ ABSL_GUARDED_BY(mutex_);  // As it was before those.
  Coordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  const uint64_t incarnation_;  // The coordinator's.
  std::map<JoinToken, JoinWaiter*> waiters_ ABSL_GUARDED_BY(mutex_);
  std::map<CheckpointToken, CheckpointAnswer> requests_ ABSL_GUARDED_BY(mutex_);
  std::map<ControlStreamId, ControlOutput*> outputs_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread ticker_;
  std::thread writer_;
};

}  // namespace sluice::server
