// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/call_gate.h"

#include <algorithm>

#include "net/grpc/steady_deadline.h"

namespace sluice::net {
namespace {

// Longest time until a closed gate is noticed.
constexpr absl::Duration kConnectSlice = absl::Milliseconds(50);

}  // namespace

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

bool CallGate::ConnectFor(absl::Duration duration, grpc::Channel* channel) {
  const absl::Time until = clock_->Now() + duration;
  for (;;) {
    const absl::Duration left = until - clock_->Now();
    const bool over = left <= absl::ZeroDuration();
    if (over || channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) {
      return SleepFor(left);
    }
    if (!SleepFor(absl::ZeroDuration())) return false;
    channel->WaitForConnected(SteadyDeadline(std::min(left, kConnectSlice)));
  }
}

}  // namespace sluice::net
