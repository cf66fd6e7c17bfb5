// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/update_receiver.h"

#include <algorithm>
#include <utility>

namespace sluice::follow {
namespace {

constexpr absl::Duration kPauseMin = absl::Milliseconds(100);
constexpr absl::Duration kPauseMax = absl::Seconds(2);

}  // namespace

UpdateReceiver::UpdateReceiver(Options options, Callbacks callbacks, const Clock* clock)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      clock_(clock),
      thread_([this] { Run(); }) {}

UpdateReceiver::~UpdateReceiver() {
  Stop();
  thread_.join();
}

void UpdateReceiver::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stopped_.SignalAll();
  }
  stream_.Cancel();
}

// Returns false if the receiver was stopped.
bool UpdateReceiver::Pause(absl::Duration pause) {
  const absl::Time until = clock_->Now() + pause;
  MutexLock lock(&mutex_);
  while (!stopping_ && clock_->Now() < until) stopped_.WaitFor(&mutex_, until - clock_->Now());
  return !stopping_;
}

void UpdateReceiver::Run() {
  absl::Time heard = clock_->Now();
  absl::Duration pause = kPauseMin;
  do {
    FollowQuery query = options_.query;
    query.have = callbacks_.have();
    const absl::Time began = clock_->Now();
    const absl::Status status = stream_.Receive(*options_.transport, options_.address, query,
                                                [&](uint32_t term, std::vector<std::byte> update) {
                                                  heard = clock_->Now();
                                                  pause = kPauseMin;
                                                  return callbacks_.take(term, std::move(update));
                                                });
    const absl::Time now = clock_->Now();
    // A call that lasted shows that the server answers, even if it had nothing to send.
    if (now - began > kPauseMax) heard = now;
    const bool may_retry = absl::IsUnavailable(status) || absl::IsCancelled(status);
    if (!may_retry || now - heard > options_.patience) {
      {
        MutexLock lock(&mutex_);
        if (stopping_) return;
      }
      callbacks_.ended(status);
      return;
    }
    pause = std::min(2 * pause, kPauseMax);
  } while (Pause(pause));
}

}  // namespace sluice::follow
