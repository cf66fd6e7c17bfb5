// Clock: time as a dependency. Cores take `absl::Time now` as an argument; only edges hold a Clock.
#pragma once

#include "absl/time/time.h"
#include "base/mutex.h"

namespace sluice {

// Thread-safe. Now() never goes back; its origin means nothing, only differences do.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  absl::Time Now() const override;
};

// Stands still until told.
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
