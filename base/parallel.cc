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
  {
    MutexLock lock(&mutex_);
    work_ = &work;
    next_ = 0;
    parts_ = parts;
    changed_.SignalAll();
  }
  WorkAs(0);
  MutexLock lock(&mutex_);
  while (running_ > 0) changed_.Wait(&mutex_);
  work_ = nullptr;
  next_ = parts_ = 0;
}

void Parallel::RunThread(size_t lane) {
  while (AwaitParts()) {
    if (around_) {
      around_([&] { WorkAs(lane); });
    } else {
      WorkAs(lane);
    }
  }
}

bool Parallel::AwaitParts() {
  MutexLock lock(&mutex_);
  while (!stopping_ && next_ == parts_) changed_.Wait(&mutex_);
  return !stopping_;
}

std::optional<Parallel::Part> Parallel::TakePart() {
  MutexLock lock(&mutex_);
  if (next_ == parts_) return std::nullopt;
  ++running_;
  return Part{.work = work_, .number = next_++};
}

void Parallel::EndPart() {
  MutexLock lock(&mutex_);
  if (--running_ == 0 && next_ == parts_) changed_.SignalAll();
}

void Parallel::WorkAs(size_t lane) {
  while (const std::optional<Part> part = TakePart()) {
    (*part->work)(part->number, lane);
    EndPart();
  }
}

}  // namespace sluice
