// SPDX-License-Identifier: Apache-2.0
// Clock: an injectable source of time. Cores take `absl::Time now` as an argument; only the code
// around the cores holds a Clock.
#pragma once

#include "absl/time/time.h"
#include "base/mutex.h"

namespace sluice {

// A clock is thread-safe. Now() never decreases. Its origin is arbitrary, so only differences
// between times are meaningful.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  absl::Time Now() const override;
};

// A clock whose time changes only when Advance() is called.
class SimulatedClock final : public Clock {
 public:
  absl::Time Now() const override {
    MutexLock lock(&mutex_);
    return now_;
  }
  void Advance(absl::Duration by) {
    MutexLock lock(&mutex_);
    now_ += by;
  }

 private:
  mutable Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::UnixEpoch();
};

}  // namespace sluice
