// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <utility>

#include "base/check.h"

namespace sluice {

Parallel::Parallel(size_t lanes, Around around) : lanes_(lanes), around_(std::move(around)) {
  Check(lanes > 0, "the caller is a lane");
  for (size_t lane = 1; lane < lanes; ++lane) {
    threads_.emplace_back([this, lane] { RunThread(lane); });
  }
}

Parallel::~Parallel() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Parallel::For(size_t parts, Work work) {
  if (lanes_ == 1 || parts <= 1) {
    for (size_t part = 0; part < parts; ++part) work(part, 0);
    return;
  }
  const Task task{.work = &work, .parts = parts};
  {
    MutexLock lock(&mutex_);
    task_ = task;
    next_.store(0);
    ++running_;
    changed_.SignalAll();
  }
  WorkAs(0, task);
  LeaveTask();
  MutexLock lock(&mutex_);
  while (running_ > 0) changed_.Wait(&mutex_);
  task_ = {};
}

void Parallel::RunThread(size_t lane) {
  while (const std::optional<Task> task = JoinTask()) {
    if (around_) {
      around_([&] { WorkAs(lane, *task); });
    } else {
      WorkAs(lane, *task);
    }
    LeaveTask();
  }
}

std::optional<Parallel::Task> Parallel::JoinTask() {
  MutexLock lock(&mutex_);
  while (!stopping_ && next_.load() >= task_.parts) changed_.Wait(&mutex_);
  if (stopping_) return std::nullopt;
  ++running_;
  return task_;
}

void Parallel::LeaveTask() {
  MutexLock lock(&mutex_);
  if (--running_ == 0) changed_.SignalAll();
}

void Parallel::WorkAs(size_t lane, const Task& task) {
  for (size_t part = next_.fetch_add(1); part < task.parts; part = next_.fetch_add(1)) {
    (*task.work)(part, lane);
  }
}

}  // namespace sluice
