#include "server/rpc/coordinator_host.h"

#include <algorithm>
#include <utility>

#include "server/rpc/convert.h"

namespace sluice {

CoordinatorHost::CoordinatorHost(CoordinatorOptions options, const Clock* clock, Logger logger)
    : server_incarnation_(options.server_incarnation),
      tick_(std::min(options.lease / 20, absl::Milliseconds(100))),
      clock_(clock),
      logger_(std::move(logger)),
      coordinator_(std::move(options), clock->Now()),
      ticker_([this] { RunTicks(); }) {}

CoordinatorHost::~CoordinatorHost() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stopping_changed_.SignalAll();
  }
  ticker_.join();
}

void CoordinatorHost::RunTicks() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    stopping_changed_.WaitFor(&mutex_, tick_);
    Coordinator::Effects effects;
    coordinator_.Tick(clock_->Now(), &effects);
    Deliver(effects);
  }
}

JoinToken CoordinatorHost::Join(JoinWaiter* waiter, WorkerJoin join) {
  MutexLock lock(&mutex_);
  const JoinToken token = ++last_id_;
  waiters_.emplace(token, waiter);
  Coordinator::Effects effects;
  coordinator_.Join(token, std::move(join), clock_->Now(), &effects);
  Deliver(effects);
  return token;
}

bool CoordinatorHost::JoinCancelled(JoinToken token) {
  MutexLock lock(&mutex_);
  if (waiters_.erase(token) == 0) return false;
  coordinator_.JoinCancelled(token);
  return true;
}

absl::StatusOr<JobState> CoordinatorHost::Heartbeat(const WorkerHeartbeat& heartbeat) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  absl::StatusOr<JobState> state = coordinator_.Heartbeat(heartbeat, clock_->Now(), &effects);
  Deliver(effects);
  return state;
}

absl::StatusOr<JobState> CoordinatorHost::Leave(const WorkerLeave& leave) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  absl::StatusOr<JobState> state = coordinator_.Leave(leave, clock_->Now(), &effects);
  Deliver(effects);
  return state;
}

ControlStreamId CoordinatorHost::Open(ControlOutput* output) {
  MutexLock lock(&mutex_);
  outputs_.emplace(++last_id_, output);
  return last_id_;
}

void CoordinatorHost::ShardArrived(ControlStreamId stream, const ShardArrival& arrival) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.AttachShard(stream, arrival, clock_->Now(), &effects);
  Deliver(effects);
}

void CoordinatorHost::ShardHealth(ControlStreamId stream, const ShardHealthReport& health) {
  MutexLock lock(&mutex_);
  coordinator_.ShardHealth(stream, health, clock_->Now());
}

void CoordinatorHost::ShardAcknowledged(ControlStreamId stream, uint64_t sequence) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.ShardAcknowledged(stream, sequence, clock_->Now(), &effects);
  Deliver(effects);
}

void CoordinatorHost::ShardFailed(ControlStreamId stream, absl::string_view reason) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.ShardFailed(stream, reason, &effects);
  Deliver(effects);
}

void CoordinatorHost::ShardGone(ControlStreamId stream) {
  MutexLock lock(&mutex_);
  outputs_.erase(stream);
  coordinator_.ShardDetached(stream);
}

void CoordinatorHost::Fail(absl::string_view reason) {
  MutexLock lock(&mutex_);
  Coordinator::Effects effects;
  coordinator_.Fail(reason, &effects);
  Deliver(effects);
}

bool CoordinatorHost::Drained() const {
  MutexLock lock(&mutex_);
  return coordinator_.Drained();
}

JobStatus CoordinatorHost::Status() const {
  MutexLock lock(&mutex_);
  return coordinator_.Status(clock_->Now());
}

void CoordinatorHost::Deliver(const Coordinator::Effects& effects) {
  for (const CoordinatorEffect& effect : effects) {
    if (const auto* join = std::get_if<AnswerJoin>(&effect)) {
      const auto waiter = waiters_.find(join->token);
      if (waiter == waiters_.end()) continue;
      waiter->second->Answer(join->grant);
      waiters_.erase(waiter);
    } else if (const auto* command = std::get_if<CommandShard>(&effect)) {
      const auto output = outputs_.find(command->stream);
      if (output == outputs_.end()) continue;
      output->second->Send(std::make_shared<const v1::ShardCommand>(CommandToProto(*command)));
    } else if (const auto* refusal = std::get_if<RefuseShard>(&effect)) {
      logger_.Warning("a shard was refused: ", refusal->why.message());
      const auto output = outputs_.find(refusal->stream);
      if (output != outputs_.end()) output->second->Close(ToGrpc(refusal->why));
    } else {
      logger_.Info(std::get<Notice>(effect).text);
    }
  }
  const JobPhase phase = coordinator_.phase();
  if (end_logged_ || (phase != JobPhase::kFinished && phase != JobPhase::kFailed)) return;
  end_logged_ = true;
  if (phase == JobPhase::kFinished) {
    logger_.Info("the job has finished");
  } else {
    logger_.Error("the job has failed: ", coordinator_.failure());
  }
}

}  // namespace sluice
