// SignalWatch: SIGINT and SIGTERM as a call on a thread of its own, for a program that may be
// blocked anywhere.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/time/time.h"

namespace sluice::app {

// Call first in main: threads that start later inherit it. Signals then wait until a SignalWatch
// takes them.
void BlockStopSignals();

class SignalWatch {
 public:
  // At the first signal calls `on_signal` on the watching thread. If the watch still stands `grace`
  // later, or at a second signal, the process ends with 128 + signal.
  SignalWatch(std::function<void(int signal)> on_signal, absl::Duration grace);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // 0: none came yet.
  int received() const { return received_; }

 private:
  void Watch();

  const std::function<void(int)> on_signal_;
  const absl::Duration grace_;
  std::atomic<int> received_ = 0;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace sluice::app
