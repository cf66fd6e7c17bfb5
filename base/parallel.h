// SPDX-License-Identifier: Apache-2.0
// Parallel: runs the parts of a task on several threads and waits for all of them.
#pragma once

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
  struct Part {
    const Work* work = nullptr;
    size_t number = 0;
  };

  void RunThread(size_t lane);
  // Returns false if the thread must end.
  bool AwaitParts();
  std::optional<Part> TakePart();
  void EndPart();
  // Works until no part is left.
  void WorkAs(size_t lane);

  const size_t lanes_;
  const Around around_;
  Mutex mutex_;
  CondVar changed_;
  const Work* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t parts_ ABSL_GUARDED_BY(mutex_) = 0;    // 0 between calls of For.
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;  // Parts that have begun and not ended.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
