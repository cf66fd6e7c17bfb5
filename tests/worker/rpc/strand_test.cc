// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/strand.h"

#include <gtest/gtest.h>

#include <optional>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace sluice::worker {
namespace {

// Counts the runs of a strand's work, and holds a run back while it is closed.
class Gate {
 public:
  // Returns `next` once the gate is open.
  absl::Time Pass(absl::Time next) {
    MutexLock lock(&mutex_);
    ++runs_;
    changed_.SignalAll();
    while (closed_) changed_.Wait(&mutex_);
    return next;
  }
  void AwaitRuns(int runs) {
    MutexLock lock(&mutex_);
    while (runs_ < runs) changed_.Wait(&mutex_);
  }
  void Close() { SetClosed(true); }
  void Open() { SetClosed(false); }
  int runs() const {
    MutexLock lock(&mutex_);
    return runs_;
  }

 private:
  void SetClosed(bool closed) {
    MutexLock lock(&mutex_);
    closed_ = closed;
    changed_.SignalAll();
  }

  mutable Mutex mutex_;
  CondVar changed_;
  int runs_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Stands still, and knows how often it was read. A strand reads it only when it has to wait.
class StillClock final : public Clock {
 public:
  absl::Time Now() const override {
    MutexLock lock(&mutex_);
    ++reads_;
    changed_.SignalAll();
    return absl::UnixEpoch();
  }
  void AwaitReads(int reads) {
    MutexLock lock(&mutex_);
    while (reads_ < reads) changed_.Wait(&mutex_);
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable int reads_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(Strand, RunsOnceAtTheStartAndAfterEachWake) {
  SteadyClock clock;
  Gate gate;
  Strand strand(&clock, [&] { return gate.Pass(absl::InfiniteFuture()); });
  gate.AwaitRuns(1);
  strand.Wake();
  gate.AwaitRuns(2);
  strand.Wake();
  gate.AwaitRuns(3);
}

TEST(Strand, WaitsAgainAfterTheRunThatAWakeCaused) {
  StillClock clock;
  Gate gate;
  Strand strand(&clock, [&] { return gate.Pass(absl::UnixEpoch() + absl::Hours(1)); });
  clock.AwaitReads(1);
  strand.Wake();
  gate.AwaitRuns(2);
  clock.AwaitReads(2);
}

TEST(Strand, AWakeDuringARunCausesAnotherRun) {
  SteadyClock clock;
  Gate gate;
  gate.Close();
  Strand strand(&clock, [&] { return gate.Pass(absl::InfiniteFuture()); });
  gate.AwaitRuns(1);
  strand.Wake();
  gate.Open();
  gate.AwaitRuns(2);
}

TEST(Strand, RunsAgainWhenTheTimeHasComeWithoutAWake) {
  SteadyClock clock;
  Gate gate;
  Strand strand(&clock, [&] { return gate.Pass(clock.Now() + absl::Milliseconds(1)); });
  gate.AwaitRuns(3);
}

TEST(Strand, RunsAgainAtOnceIfItsWorkSaysSo) {
  SteadyClock clock;
  Gate gate;
  Strand strand(&clock, [&] { return gate.Pass(absl::InfinitePast()); });
  gate.AwaitRuns(3);
}

TEST(Strand, EndsWithoutAnotherRunWhileItWaits) {
  SteadyClock clock;
  Gate gate;
  std::optional<Strand> strand;
  strand.emplace(&clock, [&] { return gate.Pass(clock.Now() + absl::Hours(1)); });
  gate.AwaitRuns(1);
  strand.reset();
  EXPECT_EQ(gate.runs(), 1);
}

}  // namespace
}  // namespace sluice::worker
