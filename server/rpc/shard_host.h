// SPDX-License-Identifier: Apache-2.0
// ShardHost: runs a shard's core behind one lock, and carries out the core's effects: AnswerStreams
// sends answers, PartReader and SnapshotWriter read and write the shard's parts of job checkpoints.
// A rollback replaces the core with a restored one. The lock is free while the core is copied for a
// snapshot: statistics stay available, so that a large copy does not let the lease expire, but
// changes of the core wait. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/trace_file.h"
#include "job/job_spec.h"
#include "protocol/disk_wait.h"
#include "protocol/shard_control.h"
#include "protocol/stage_times.h"
#include "server/control/plan_bytes.h"
#include "server/control/slowest_stream.h"
#include "server/coordinator/link_tracker.h"
#include "server/rpc/answer_streams.h"
#include "server/rpc/copy_gate.h"
#include "server/rpc/host_term.h"
#include "server/rpc/part_examiner.h"
#include "server/rpc/part_reader.h"
#include "server/rpc/parts_claim.h"
#include "server/rpc/shard_trace.h"
#include "server/rpc/snapshot_writer.h"
#include "server/rpc/weights_source.h"
#include "server/shard/rank_waits.h"
#include "server/shard/shard.h"

namespace sluice::server {

// How a request arrived.
struct RequestArrival {
  // Arrival time by ShardHost::Now. If unset, the request arrived when it was handled.
  std::optional<absl::Time> came{};
  std::optional<protocol::LinkReport> link{};  // The report in the request.
  // Busy periods of the stream since the previous report.
  std::vector<protocol::LinkPeriod> up{};
};

class ShardHost {
 public:
  struct Options {
    uint32_t shard = 0;
    size_t threads = 1;  // ShardOptions::threads.
    job::JobSpec job;
    // Called once, with the host's lock held, if the job cannot continue. Must not call back.
    std::function<void(const std::string&)> on_alarm;
    // Called on shard 0 of a job that makes plans, for each plan that shard 0 makes or begins with.
    // The host's lock is held.
    std::function<void(const protocol::CompressionPlan&, std::optional<PlanBytes>)> on_plan{};
    std::function<std::vector<SlowestStream>()> slowest_streams{};  // Called with the lock held.
    TraceFile* trace = nullptr;                                     // Null writes no trace.
    // Receives the sums of a rack's job. The host's lock is held.
    std::function<void(std::shared_ptr<const BundleSum>)> on_summed{};
    WeightsSource* weights = nullptr;     // Null if the job has no followers.
    PartReader::Fetch fetch_part{};       // Null if no part of a checkpoint is on another server.
    std::function<void()> before_copy{};  // For tests: called, without the lock, before a copy.
  };

  ShardHost(Options options, const Clock* clock, Logger logger);
  ~ShardHost();

  // Events for the coordinator: an announced checkpoint, a part that is durable, failed or cannot
  // be restored, a worker that cannot be repaired or must be removed, or an examined part.
  using ShardEvent = std::variant<CheckpointNamed, protocol::CheckpointPart, NotReproducible,
                                  RankRefused, protocol::PartExamined>;
  // The host's current work. `running` means that the host has a core and the job has not ended.
  struct Work {
    uint64_t job_uid = 0;
    uint32_t term = 0;
    bool running = false;
  };
  // Sets the listener; null removes it. The listener may be called with the host's lock held and
  // must not call back. After ReportTo returns, the previous listener is no longer called.
  void ReportTo(std::function<void(const ShardEvent&)> listener);

  // Divides the table and creates the core, restored if `start` names a checkpoint. Repeating the
  // current term is OK: the core stays and adopts the membership and the coordinator, which may
  // have restarted. A higher term of the same run replaces the core. Calls must not overlap.
  //
  // Fails with UNAVAILABLE if this shard's part of the checkpoint cannot be read now; a retry may
  // succeed. Fails with DATA_LOSS if that part is damaged or was unreadable for
  // server.rejoin_timeout; the host has then reported it. Fails with INVALID_ARGUMENT if the table
  // cannot be divided, the state cannot be restored, or a shard of a job with checkpoints has no
  // chunk. Fails with FAILED_PRECONDITION for another run, a term that is over, a coordinator that
  // was replaced, or a folder with parts of another run.
  absl::Status Start(const protocol::StartShard& start);
  // Removes the core. Until the Start of `term`, senders of earlier terms get FENCED with `term`,
  // and other senders get BUSY.
  void Suspend(uint32_t term, absl::string_view reason);
  // Calls Shard::NameCheckpoint. Has no effect without a core.
  absl::Status NameCheckpoint(uint64_t minimum_step);
  // With store `shards`: removes this server's parts of checkpoints for steps below `before`,
  // except for `steps`.
  void KeepCheckpoints(const std::vector<uint64_t>& steps, uint64_t before) const;
  PartExaminer* examiner() const { return examiner_.get(); }  // Null without checkpoints.
  // Calls Shard::SetMembership. Has no effect without a core, because Start sets the membership.
  absl::Status SetMembership(uint32_t generation, const std::vector<uint64_t>& incarnations);
  // Calls Shard::ReleaseResults. Has no effect without a core.
  void ReleaseResults(uint64_t durable_step);
  // Calls Shard::Publish. Has no effect without a core of that term.
  void Publish(uint32_t term, const std::vector<Publication>& publications);
  // Sets this process's number, which all answers contain. Call this before the first Start.
  void SetIncarnation(uint64_t incarnation);
  // Answers all further requests with FENCED and `reason`.
  void End(absl::string_view reason);
  // Breaks all streams, including later ones, as a crash would. Another process serves the shard or
  // will serve it; FENCED would end the workers, which must find that process.
  void Withdraw(absl::string_view reason);
  void Tick();
  // Offers the current parameters to followers.
  void OfferWeights();

  // `output` must stay valid until Closed.
  StreamId Open(AnswerOutput* output);
  void Closed(StreamId stream);
  void Handle(StreamId stream, protocol::ExchangeRequest exchange,
              const RequestArrival& arrival = {});
  // Answers INVALID to a request that could not be parsed.
  void Refuse(StreamId stream, uint64_t step, uint32_t bundle, std::string why);

  // Calls PartsClaim::ClaimAgain before a part is written. Returns OK if the store is not `shards`.
  absl::Status ClaimFolder() const;
  // Fails with UNAVAILABLE if there is no core now. Fails with FAILED_PRECONDITION and the reason
  // if the sender does not hold its rank.
  absl::Status CheckSender(const protocol::Sender& sender) const;

  // Calls Shard::CheckPartStep. Fails with UNAVAILABLE if there is no core now.
  absl::Status CheckPartStep(uint64_t step) const;

  bool started() const;
  Work work() const;
  ShardStats Stats() const;
  double ResidualEnergy() const;
  std::optional<SnapshotStats> Snapshots() const;  // Unset in a job without checkpoints.
  protocol::ShardHealthReport Health() const;
  LinkStats Links() const;
  absl::Time Now() const { return clock_->Now(); }
  // Times since this host was created, over all cores. Callers that deliver requests add theirs.
  protocol::StageTimes* stages() { return &stages_; }
  const protocol::StageTimes& stages() const { return stages_; }
  uint64_t incarnation() const {
    MutexLock lock(&mutex_);
    return incarnation_;
  }
  TraceFile* trace() const { return options_.trace; }

 private:
  void RunTicks();
  void RunCopy(absl::FunctionRef<void()> copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleLocked(StreamId stream, protocol::ExchangeRequest exchange,
                    const RequestArrival& arrival) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SetMembershipLocked(uint32_t generation, const std::vector<uint64_t>& incarnations)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MoveToTerm(const protocol::StartShard& start, bool* is_running);
  ShardOptions OptionsOf(const protocol::StartShard& start, protocol::Layout layout,
                         std::shared_ptr<const protocol::ShardSnapshot> snapshot);
  // Logs one line for each change.
  void ReportPlan(const protocol::CompressionPlan& plan) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogStart(const protocol::StartShard& start, absl::Duration took) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  protocol::DiskWait NowAtDisk() const;
  void ReportUnusable(const protocol::StartShard& start, const absl::Status& why);
  void Report(const ShardEvent& news);
  void ForwardMeasurements() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteArrival(uint32_t rank, const TraceTags& at, absl::Time came, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteAnswer(const SendReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Conclude(const std::vector<ShardEffect>& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(const std::vector<ShardEffect>& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(StreamId stream, const std::shared_ptr<const protocol::ExchangeReply>& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::string folder_;  // Folder for this shard's parts of checkpoints.
  PartReader reader_;         // Has a lock of its own, taken after mutex_.
  const Clock* const clock_;
  const Logger logger_;
  protocol::StageTimes stages_;
  mutable Mutex mutex_;
  // Null before Start, and from Suspend to the next Start.
  std::unique_ptr<Shard> shard_ ABSL_GUARDED_BY(mutex_);
  HostTerm term_ ABSL_GUARDED_BY(mutex_);
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;  // 0 until the coordinator has given a number.
  AnswerStreams streams_ ABSL_GUARDED_BY(mutex_);
  RankWaits waits_ ABSL_GUARDED_BY(mutex_);
  LinkTracker links_ ABSL_GUARDED_BY(mutex_);
  // The value of WorkSeconds(stages_) when links_ last measured a step.
  double worked_s_ ABSL_GUARDED_BY(mutex_) = 0;
  ShardTrace trace_ ABSL_GUARDED_BY(mutex_);
  CopyGate gate_ ABSL_GUARDED_BY(mutex_);  // While it copies the core, the core must not change.

  CondVar tick_sooner_;
  absl::Time next_tick_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // Of the ticker.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread ticker_;  // Runs in a job with a quorum.

  Mutex listener_mutex_;  // Acquire after mutex_.
  std::function<void(const ShardEvent&)> listener_ ABSL_GUARDED_BY(listener_mutex_);
  std::unique_ptr<PartsClaim> claim_;       // Null unless the store is `shards`.
  std::unique_ptr<PartExaminer> examiner_;  // Null in a job without checkpoints.
  std::unique_ptr<SnapshotWriter> writer_;  // Likewise. Destroyed first.
};

}  // namespace sluice::server
