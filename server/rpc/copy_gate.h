// SPDX-License-Identifier: Apache-2.0
// CopyGate: lets other threads use a host while its core is copied for a snapshot. The copy takes
// milliseconds per million elements. During a copy, the host's lock is free, and changes of the
// core are deferred; the copying thread makes them afterwards. The host's lock guards this object.
// Functions that take a mutex expect that lock to be held and may release it for a while.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "absl/functional/function_ref.h"
#include "base/mutex.h"

namespace sluice::server {

class CopyGate {
 public:
  // Sets the limit on the bytes of deferred changes.
  void LimitBytes(uint64_t bytes) { bytes_max_ = bytes; }

  // Runs `copy` without the lock.
  void Run(Mutex* mutex, absl::FunctionRef<void()> copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool copying() const { return copying_; }
  // Returns once no copy is being made.
  void Await(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Defers a change of the core if a copy is being made. Otherwise returns false and leaves
  // `change` as it is; the caller makes the change now. Waits only if the deferred bytes would
  // exceed the limit. A change of 0 bytes never waits.
  bool Defer(Mutex* mutex, uint64_t bytes, std::function<void()>* change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Makes the deferred changes in order. The copying thread calls this before it releases the lock.
  // A change may run another copy; further changes are then deferred behind the remaining ones.
  void RunDeferred();

 private:
  bool copying_ = false;
  CondVar copied_;
  std::deque<std::function<void()>> deferred_;
  uint64_t deferred_bytes_ = 0;
  uint64_t bytes_max_ = 0;
};

}  // namespace sluice::server
