// SPDX-License-Identifier: Apache-2.0
// Parallel: runs the parts of a task on several threads and waits for all of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/mutex.h"

namespace sluice {

class Parallel {
 public:
  using Work = absl::FunctionRef<void(size_t part, size_t lane)>;
  // Runs the work of one of this object's threads, for example to measure its time.
  using Around = std::function<void(absl::FunctionRef<void()> work)>;

  // Starts `lanes` - 1 threads; the caller of For is the other one. `lanes` is at least 1.
  explicit Parallel(size_t lanes, Around around = nullptr);
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  size_t lanes() const { return lanes_; }
  // Calls work(part, lane) once for each part below `parts`, and returns after all calls. Calls at
  // the same time have different lanes, which are below lanes(). Parts begin in order. With one
  // lane or one part, all calls run on the caller's thread, as lane 0. Must not be called by two
  // threads at the same time, nor by `work`.
  void For(size_t parts, Work work);

 private:
  struct Task {
    const Work* work = nullptr;
    size_t parts = 0;
  };

  void RunThread(size_t lane);
  // Joins the task of the current call of For, or returns nothing if the thread must end.
  std::optional<Task> JoinTask();
  void LeaveTask();
  // Works until no part is left. Takes no lock, because parts may be short.
  void WorkAs(size_t lane, const Task& task);

  const size_t lanes_;
  const Around around_;
  Mutex mutex_;
  CondVar changed_;
  Task task_ ABSL_GUARDED_BY(mutex_);  // Without parts between calls of For.
  std::atomic<size_t> next_ = 0;       // The next part of the task; parts or more if none is left.
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;  // Lanes that have joined the task and not left it.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
