// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/strand.h"

#include <utility>

namespace sluice::worker {

Strand::Strand(const Clock* clock, std::function<absl::Time()> work)
    : clock_(clock), work_(std::move(work)), thread_([this] { Run(); }) {}

void Strand::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Strand::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  changed_.SignalAll();
}

void Strand::Run() {
  while (true) {
    const absl::Time next = work_();
    MutexLock lock(&mutex_);
    while (!woken_ && !stopping_) {
      if (next == absl::InfiniteFuture()) {
        changed_.Wait(&mutex_);
        continue;
      }
      const absl::Duration left = next - clock_->Now();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(&mutex_, left);
    }
    woken_ = false;
    if (stopping_) return;
  }
}

}  // namespace sluice::worker
