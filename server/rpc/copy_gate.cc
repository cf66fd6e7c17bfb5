// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/copy_gate.h"

#include <utility>

namespace sluice::server {

void CopyGate::Run(Mutex* mutex, absl::FunctionRef<void()> copy) {
  copying_ = true;
  mutex->Unlock();
  copy();
  mutex->Lock();
  copying_ = false;
  copied_.SignalAll();
}

void CopyGate::Await(Mutex* mutex) {
  while (copying_) copied_.Wait(mutex);
}

bool CopyGate::Defer(Mutex* mutex, uint64_t bytes, std::function<void()>* change) {
  while (copying_) {
    if (bytes == 0 || deferred_bytes_ + bytes <= bytes_max_) {
      deferred_bytes_ += bytes;
      deferred_.push_back(std::move(*change));
      return true;
    }
    copied_.Wait(mutex);
  }
  return false;
}

void CopyGate::RunDeferred() {
  while (!deferred_.empty()) {
    const std::function<void()> change = std::move(deferred_.front());
    deferred_.pop_front();
    change();
  }
  deferred_bytes_ = 0;
}

}  // namespace sluice::server
