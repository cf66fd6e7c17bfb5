#include "worker/rpc/call_gate.h"

namespace sluice {

void CallGate::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  for (grpc::ClientContext* context : under_way_) context->TryCancel();
  closed_changed_.SignalAll();
}

bool CallGate::Begin(grpc::ClientContext* context) {
  MutexLock lock(&mutex_);
  if (closed_) return false;
  under_way_.insert(context);
  return true;
}

bool CallGate::End(grpc::ClientContext* context) {
  MutexLock lock(&mutex_);
  under_way_.erase(context);
  return !closed_;
}

bool CallGate::SleepFor(absl::Duration duration) {
  MutexLock lock(&mutex_);
  const absl::Time until = clock_->Now() + duration;
  while (!closed_ && clock_->Now() < until) {
    closed_changed_.WaitFor(&mutex_, until - clock_->Now());
  }
  return !closed_;
}

}  // namespace sluice
