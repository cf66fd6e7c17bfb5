// ShardHost: a shard's core behind one lock, with the streams that its effects go to, and its part
// of job checkpoints. A rollback replaces the core by one that is restored. The lock is free while
// the core is copied for a snapshot: figures are told, so that a large copy costs no lease, and
// changes of the core wait. Thread-safe.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <deque>
#include <functional>
#include <map>
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
#include "protocol/stage_times.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/link_book.h"
#include "server/rpc/parts_claim.h"
#include "server/rpc/queued_stream.h"
#include "server/rpc/snapshot_writer.h"
#include "server/shard/rank_waits.h"
#include "server/shard/shard.h"

namespace sluice::server {

using ExchangeOutput = QueuedStream<grpc::ByteBuffer, grpc::ByteBuffer>;

// How a request came.
struct RequestArrival {
  std::optional<absl::Time> came{};            // By ShardHost::Now. None: as late as its turn.
  std::optional<protocol::LinkReport> link{};  // That it brought, with...
  std::vector<protocol::LinkPeriod>
      up{};  // ...the busy periods of its stream since the report before.
};

class ShardHost {
 public:
  // Of answers that may wait on one stream: before the shard has its part of the job, and at least.
  static constexpr uint64_t kAnswerBytesMin = 1 << 20;

  struct Options {
    uint32_t shard = 0;
    job::JobSpec job;
    // Told once that the job cannot go on. Called with the host's lock held: must not call back.
    std::function<void(const std::string&)> on_alarm;
    // Of shard 0, in a job that makes plans: told of each that it makes or begins with. Likewise.
    std::function<void(const protocol::CompressionPlan&, std::optional<PlanBytes>)> on_plan{};
    TraceFile* trace = nullptr;  // Null: none is written.
    // Of a rack's job: what is handed on. Called likewise.
    std::function<void(std::shared_ptr<const BundleSum>)> on_summed{};
    // For tests: called without the lock before the core is copied for a snapshot.
    std::function<void()> before_copy{};
  };

  ShardHost(Options options, const Clock* clock, Logger logger);
  ~ShardHost();

  // For the coordinator: a checkpoint that is announced to the workers, a part that is durable or
  // is not, or one that cannot be restored, and that a worker cannot be repaired.
  using News = std::variant<CheckpointNamed, protocol::CheckpointPart, NotReproducible>;
  // What it works for; `running`: it has a core and the job has not ended.
  struct Work {
    uint64_t job_uid = 0;
    uint32_t term = 0;
    bool running = false;
  };
  // Null: nobody. May be called with the host's lock held, so it must not call back. After this
  // returns the listener before is no longer called.
  void ReportTo(std::function<void(const News&)> listener);

  // Cuts the table and makes the core, restored from a checkpoint if `start` names one. The same
  // term again is OK: the core stays, and takes the membership and the coordinator, which may have
  // been started again. A higher term of the same run replaces the core. One call at a time.
  // UNAVAILABLE: this shard's part of the checkpoint cannot be read now; the same again may do.
  // DATA_LOSS: that part is damaged, or could not be read for server.wait_limit; it was reported.
  // INVALID_ARGUMENT: what cannot be cut or restored; with checkpoints, a shard without a chunk.
  // FAILED_PRECONDITION: of another run, a term that is over, or a coordinator that was replaced.
  absl::Status Start(const StartShard& start);
  // Lets go of the core: senders of earlier terms than `term` are answered FENCED with it, others
  // BUSY until the Start of `term`.
  void Suspend(uint32_t term, absl::string_view reason);
  // As Shard::NameCheckpoint; nothing where there is no core.
  absl::Status NameCheckpoint(uint64_t minimum_step);
  // With store `shards`: removes the parts here of checkpoints after steps below `before`, but for
  // `steps`.
  void KeepCheckpoints(const std::vector<uint64_t>& steps, uint64_t before) const;
  // As Shard::SetMembership; nothing where there is no core, whose Start will say it.
  absl::Status SetMembership(uint32_t generation, const std::vector<uint64_t>& incarnations);
  // As Shard::ReleaseResults; nothing where there is no core.
  void ReleaseResults(uint64_t durable_step);
  // As Shard::Publish; nothing where there is no core of that term.
  void Publish(uint32_t term, const std::vector<Publication>& publications);
  // The number of this process, which its answers bear. Before the first Start.
  void SetIncarnation(uint64_t incarnation);
  // Answers everybody FENCED with `reason` from now on.
  void End(absl::string_view reason);
  // Breaks all streams, those to come too, as if this process had crashed: another one serves the
  // shard, or will, and to be FENCED here would be the end of a worker that is to go there.
  void Withdraw(absl::string_view reason);
  void Tick();

  // `output` must stay until Closed.
  StreamId Open(ExchangeOutput* output);
  void Closed(StreamId stream);
  void Handle(StreamId stream, protocol::Exchange exchange, const RequestArrival& arrival = {});
  // INVALID for a request that could not even be read as one.
  void Refuse(StreamId stream, uint64_t step, uint32_t bundle, std::string why);
  // As the Pull rpc. `bundles` empty: all.
  absl::StatusOr<std::vector<std::shared_ptr<const protocol::ExchangeAnswer>>> Pull(
      const protocol::Sender& sender, uint64_t after_step, const std::vector<uint32_t>& bundles);

  // With store `shards`: the folder is known to be this run's; before a part is written. As
  // PartsClaim::TakeAgain.
  absl::Status ClaimFolder() const;
  // UNAVAILABLE: no core is here now. FAILED_PRECONDITION: it does not hold its rank, and why.
  absl::Status CheckSender(const protocol::Sender& sender) const;

  bool started() const;
  Work work() const;
  ShardStats Stats() const;
  double ResidualEnergy() const;
  std::optional<SnapshotStats> Snapshots() const;  // None: a job without checkpoints.
  ShardHealthReport Health() const;
  LinkStats Links() const;
  absl::Time Now() const { return clock_->Now(); }
  // Since this was made, whatever became of cores. For whoever hands requests over, too.
  protocol::StageTimes* stages() { return &stages_; }
  const protocol::StageTimes& stages() const { return stages_; }
  uint64_t incarnation() const {
    MutexLock lock(&mutex_);
    return incarnation_;
  }
  // Likewise; null: none is written.
  TraceFile* trace() const { return options_.trace; }

 private:
  // The checkpoint that is read now, or will be read again.
  struct Restore {
    uint64_t step = 0;  // 0: none.
    uint32_t term = 0;
    absl::Time since;
    std::string trouble{};  // Why the last try failed.
  };

  void RunTicks();
  // shard_host_copy.cc.
  void RunCopy(absl::FunctionRef<void()> copy) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void AwaitCopied() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool PutOff(uint64_t bytes, std::function<void()>* change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DoPutOff() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandleLocked(StreamId stream, protocol::Exchange exchange, const RequestArrival& arrival)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginTerm(const StartShard& start, bool* is_running);
  ShardOptions OptionsOf(const StartShard& start, protocol::Layout layout,
                         std::shared_ptr<const protocol::ShardSnapshot> snapshot);
  // One line for each change.
  void TellOfPlan(const protocol::CompressionPlan& plan) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogStart(const StartShard& start, absl::Duration took) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // UNAVAILABLE: its disk is away, and server.wait_limit is not over yet.
  absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> RestoreOwnSnapshot(
      const StartShard& start);
  DiskWait NowAtDisk() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> ReadOwnSnapshot(
      const StartShard& start) const;
  absl::StatusOr<protocol::CheckpointPart> FindOwnPart(const StartShard& start) const;
  // With store `shards`: claims the folder, so that all parts in it are of one run.
  absl::Status BeginClaim(const StartShard& start) const;
  absl::Status ReportUnusable(const StartShard& start, const absl::Status& why);
  void Report(const News& news);
  void TellMeasured() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  protocol::ExchangeAnswer AnswerWithoutCore(const protocol::Exchange& exchange) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::Status Withdrawn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteAnswer(const Reply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Only where there is a trace. `encoding`: processor seconds of this call.
  void TraceHandled(const TraceTags& tags, absl::Time begin, double encoding)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TraceResult(const protocol::ExchangeAnswer& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(const std::vector<ShardEffect>& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(StreamId stream, const std::shared_ptr<const protocol::ExchangeAnswer>& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::string folder_;  // Of its parts of checkpoints.
  const Clock* const clock_;
  const Logger logger_;
  protocol::StageTimes stages_;
  mutable Mutex mutex_;
  // Null before Start, and from Suspend to the next.
  std::unique_ptr<Shard> shard_ ABSL_GUARDED_BY(mutex_);
  Restore restore_ ABSL_GUARDED_BY(mutex_);
  uint64_t job_uid_ ABSL_GUARDED_BY(mutex_) = 0;  // Of the run it works for; 0: none yet.
  uint32_t term_ ABSL_GUARDED_BY(mutex_) = 0;     // The highest told.
  // Of the coordinator that began the term or took it over: the highest told.
  uint64_t coordinator_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string suspended_ ABSL_GUARDED_BY(mutex_);  // Why.
  std::string ended_ ABSL_GUARDED_BY(mutex_);      // For who comes when there is no core.
  bool withdrawn_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: not numbered yet.
  std::map<StreamId, ExchangeOutput*> outputs_ ABSL_GUARDED_BY(mutex_);
  uint64_t answer_bytes_max_ ABSL_GUARDED_BY(mutex_) = kAnswerBytesMin;  // Of each of them.
  std::map<StreamId, uint32_t> ranks_ ABSL_GUARDED_BY(mutex_);  // Of those that sent something.
  RankWaits waits_ ABSL_GUARDED_BY(mutex_);
  LinkBook links_ ABSL_GUARDED_BY(mutex_);
  double worked_s_ ABSL_GUARDED_BY(mutex_) = 0;  // When links_ had measured a step, by stages_.
  // For traces: when the first contribution of a step's bundle came; of those that are open.
  std::map<std::pair<uint64_t, uint32_t>, absl::Time> first_arrivals_ ABSL_GUARDED_BY(mutex_);
  absl::Time handled_at_ ABSL_GUARDED_BY(mutex_);  // When the last contribution came.
  StreamId last_stream_ ABSL_GUARDED_BY(mutex_) = 0;
  // The last answer sent and its bytes: a result goes to all ranks but is serialized once.
  std::shared_ptr<const protocol::ExchangeAnswer> last_answer_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const grpc::ByteBuffer> last_bytes_ ABSL_GUARDED_BY(mutex_);

  // The core is copied, and must not change.
  bool copying_ ABSL_GUARDED_BY(mutex_) = false;
  mutable CondVar copied_;
  // Changes that came meanwhile, in order; the thread that copies does them, with the lock.
  std::deque<std::function<void()>> put_off_ ABSL_GUARDED_BY(mutex_);
  uint64_t put_off_bytes_ ABSL_GUARDED_BY(mutex_) = 0;

  CondVar tick_sooner_;
  absl::Time next_tick_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // The ticker's.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread ticker_;  // In a job with a quorum.

  Mutex listener_mutex_;  // Taken after mutex_.
  std::function<void(const News&)> listener_ ABSL_GUARDED_BY(listener_mutex_);
  std::unique_ptr<PartsClaim> claim_;       // Null but with store `shards`.
  std::unique_ptr<SnapshotWriter> writer_;  // Null in a job without checkpoints. Ends first.
};

}  // namespace sluice::server
