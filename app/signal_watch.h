// SPDX-License-Identifier: Apache-2.0
// SignalWatch: calls a function on a separate thread when SIGINT or SIGTERM arrives, for programs
// that may be blocked in any call.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/time/time.h"

namespace sluice::app {

// Blocks SIGINT and SIGTERM. Call this first in main, because threads that start later inherit the
// blocked signals. A signal then stays pending until a SignalWatch takes it.
void BlockStopSignals();

class SignalWatch {
 public:
  // Calls `on_signal` on the watching thread at the first signal. The process exits with code 128 +
  // the first signal's number if a second signal arrives, or if the watch still exists `grace`
  // later.
  SignalWatch(std::function<void(int signal)> on_signal, absl::Duration grace);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Returns the first signal that arrived, or 0 if none has.
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
