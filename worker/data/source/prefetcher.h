// SPDX-License-Identifier: Apache-2.0
// Prefetcher: prepares objects on its own thread, in order, before they are needed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace sluice::worker {

// The objects and their order do not depend on `depth`. Use it from one thread.
template <typename T>
class Prefetcher {
 public:
  // `make` returns the next object, or null at the end, and must not throw. One thread calls `make`
  // until `depth` objects are ready. With a depth of 0, Next calls `make` on the caller's thread.
  Prefetcher(uint32_t depth, std::function<std::unique_ptr<T>()> make)
      : depth_(depth), make_(std::move(make)) {
    if (depth_ > 0) thread_ = std::thread([this] { Run(); });
  }
  // Waits for the object being made and drops unused ones.
  ~Prefetcher() {
    {
      MutexLock lock(&mutex_);
      stopped_ = true;
    }
    changed_.SignalAll();
    if (thread_.joinable()) thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns null at the end.
  std::unique_ptr<T> Next() {
    if (depth_ == 0) return make_();
    MutexLock lock(&mutex_);
    while (ready_.empty() && !ended_) changed_.Wait(&mutex_);
    if (ready_.empty()) return nullptr;
    std::unique_ptr<T> next = std::move(ready_.front());
    ready_.pop_front();
    changed_.SignalAll();
    return next;
  }

 private:
  // Waits for space for another object. Returns false if the thread should stop.
  bool WaitForRoom() {
    MutexLock lock(&mutex_);
    while (ready_.size() >= depth_ && !stopped_) changed_.Wait(&mutex_);
    return !stopped_;
  }
  void Run() {
    while (WaitForRoom()) {
      std::unique_ptr<T> made = make_();
      MutexLock lock(&mutex_);
      ended_ = made == nullptr;
      if (!ended_) ready_.push_back(std::move(made));
      changed_.SignalAll();
      if (ended_) return;
    }
  }

  const uint32_t depth_;
  const std::function<std::unique_ptr<T>()> make_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::unique_ptr<T>> ready_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // The last member, because the thread uses all of the above.
};

}  // namespace sluice::worker
