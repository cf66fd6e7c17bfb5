// CoordinatorHost: the coordinator's core behind one lock, with the calls that wait for it, the
// shards' control streams and the thread that ticks. Thread-safe.
#pragma once

#include <grpcpp/support/status.h>

#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "server/core/coordinator.h"
#include "server/rpc/queued_stream.h"
#include "sluice/v1/shard_control.pb.h"

namespace sluice {

using ControlOutput = QueuedStream<v1::ShardReport, v1::ShardCommand>;

// A Join call that waits. Answered at most once, with the host's lock held.
class JoinWaiter {
 public:
  virtual ~JoinWaiter() = default;
  virtual void Answer(const absl::StatusOr<JoinGrant>& grant) = 0;
};

class CoordinatorHost {
 public:
  CoordinatorHost(CoordinatorOptions options, const Clock* clock, Logger logger);
  ~CoordinatorHost();

  // `waiter` must stay until it was answered or its token was given to JoinCancelled.
  JoinToken Join(JoinWaiter* waiter, WorkerJoin join);
  // True: the waiter is forgotten. False: it was answered before.
  bool JoinCancelled(JoinToken token);
  absl::StatusOr<JobState> Heartbeat(const WorkerHeartbeat& heartbeat);
  absl::StatusOr<JobState> Leave(const WorkerLeave& leave);

  // `output` must stay until ShardGone.
  ControlStreamId Open(ControlOutput* output);
  void ShardArrived(ControlStreamId stream, const ShardArrival& arrival);
  void ShardHealth(ControlStreamId stream, const ShardHealthReport& health);
  void ShardAcknowledged(ControlStreamId stream, uint64_t sequence);
  void ShardFailed(ControlStreamId stream, absl::string_view reason);
  void ShardGone(ControlStreamId stream);

  void Fail(absl::string_view reason);
  // The job has ended and who is there knows it.
  bool Drained() const;
  JobStatus Status() const;
  uint64_t server_incarnation() const { return server_incarnation_; }

 private:
  void RunTicks();
  void Deliver(const Coordinator::Effects& effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t server_incarnation_;
  const absl::Duration tick_;
  const Clock* const clock_;
  const Logger logger_;
  mutable Mutex mutex_;
  CondVar stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool end_logged_ ABSL_GUARDED_BY(mutex_) = false;
  Coordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  std::map<JoinToken, JoinWaiter*> waiters_ ABSL_GUARDED_BY(mutex_);
  std::map<ControlStreamId, ControlOutput*> outputs_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread ticker_;
};

}  // namespace sluice
