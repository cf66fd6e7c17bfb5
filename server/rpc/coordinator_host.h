// SPDX-License-Identifier: Apache-2.0
// CoordinatorHost: runs the coordinator's core behind one lock, and the thread that ticks. It
// carries out the core's effects in order: CoordinatorCalls answers those who wait, and RunWriter
// writes to disk without the lock. The effects that follow a write wait in the EffectQueue until
// the write is done. Therefore nothing is announced before it is on disk, and a slow disk delays no
// heartbeat. While a run record cannot be written, the membership does not change. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "server/control/plan_log.h"
#include "server/control/slowest_stream.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_history.h"
#include "server/coordinator/job_report.h"
#include "server/rpc/coordinator_calls.h"
#include "server/rpc/effect_queue.h"
#include "server/rpc/parent_job.h"
#include "server/rpc/run_folder.h"
#include "server/rpc/run_writer.h"

namespace sluice::server {

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

  // As the methods of Administration. These fail with UNAVAILABLE while a record is not on disk.
  absl::StatusOr<std::string> Evict(const Eviction& eviction);
  absl::StatusOr<RunningSettings> Change(const RunningSettings& change);

  // `output` must stay valid until ShardGone.
  ControlStreamId Open(CommandOutput* output);
  // Calls Coordinator::NumberShard. Fails with UNAVAILABLE while a record is not on disk yet.
  absl::StatusOr<uint64_t> NumberShard();
  void ShardArrived(ControlStreamId stream, const protocol::ShardArrival& arrival);
  void ShardHealth(ControlStreamId stream, const protocol::ShardHealthReport& health);
  void ShardAcknowledged(ControlStreamId stream, uint64_t sequence);
  void ShardFailed(ControlStreamId stream, absl::string_view reason);
  void ShardPart(ControlStreamId stream, const protocol::CheckpointPart& part);
  void PartExamined(ControlStreamId stream, const protocol::CheckpointPart& part);
  void ShardNamedCheckpoint(ControlStreamId stream, uint64_t step);
  void ShardNotReproducible(ControlStreamId stream, uint32_t rank, absl::string_view reason);
  void ShardRefusedRank(ControlStreamId stream, uint32_t rank, uint64_t incarnation,
                        absl::string_view reason);
  void ShardGone(ControlStreamId stream);

  // Reports a plan that shard 0, which is in this process, made or began with.
  void PlanMade(const protocol::CompressionPlan& plan, std::optional<PlanBytes> bytes);
  // Compares the reports of all shards for shard 0's control.
  std::vector<SlowestStream> SlowestStreamsNow() const;
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
  void RunTicks();
  // Delivers effects in order, after all effects that are already waiting. Blocks the caller if too
  // many are waiting.
  void Deliver(Coordinator::Effects effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(Coordinator::Effects effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries out effects up to the next disk write, and begins that write.
  void CarryOutWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CarryOut(CoordinatorEffect effect) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called on the writer's thread.
  void WriteEnded(const RunWrite& write, const absl::Status& status);
  void RecordUnwritten(const protocol::RunRecord& record, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns `state`. While a record that `state` depends on is not on disk, returns the last
  // announced state instead.
  absl::StatusOr<protocol::JobState> Announced(absl::StatusOr<protocol::JobState> state,
                                               const protocol::Sender& sender)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobStatus StatusNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails with UNAVAILABLE while a record is not on disk.
  absl::Status CheckRecordIsWritten() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool JobHasEnded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  EffectQueue effects_ ABSL_GUARDED_BY(mutex_);
  CondVar effects_changed_;  // The queue is shorter, or a write has failed.
  CoordinatorCalls calls_ ABSL_GUARDED_BY(mutex_);
  JobHistory history_ ABSL_GUARDED_BY(mutex_);
  PlanLog plans_ ABSL_GUARDED_BY(mutex_);
  protocol::JobState announced_ ABSL_GUARDED_BY(mutex_);  // State before the effects that wait.
  Coordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  const uint64_t incarnation_;  // Incarnation of the coordinator.
  std::thread ticker_;
  RunWriter writer_;  // Destroyed first, because its thread calls this object.
};

}  // namespace sluice::server
