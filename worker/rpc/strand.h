// SPDX-License-Identifier: Apache-2.0
// Strand: a thread that works whenever another thread wakes it, or when a time has come.
// Thread-safe.
#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace sluice::worker {

class Strand {
 public:
  // `work` runs on the thread, without a lock of this object. It returns when it has to run again:
  // InfinitePast for at once, InfiniteFuture for only after Wake. `clock` must outlive this object.
  Strand(const Clock* clock, std::function<absl::Time()> work);
  ~Strand() { Stop(); }

  // Makes the thread run `work` again, even if it runs at the moment.
  void Wake();
  // Waits until `work` has returned. It does not run again.
  void Stop();

 private:
  void Run();

  const Clock* const clock_;
  const std::function<absl::Time()> work_;
  Mutex mutex_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::worker
