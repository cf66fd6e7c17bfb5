// SPDX-License-Identifier: Apache-2.0
// StopSignals: lets a program poll for Ctrl-C and similar signals, which would otherwise end it.
#pragma once

#include <signal.h>

#include <optional>

#include "absl/status/statusor.h"

namespace sluice::app {

// Blocks SIGINT, SIGTERM and SIGHUP for the calling thread and for threads that start later. Create
// the object before any other thread starts.
class StopSignals {
 public:
  static absl::StatusOr<StopSignals> Catch();
  ~StopSignals();
  StopSignals(StopSignals&& other) noexcept;
  StopSignals& operator=(StopSignals&&) = delete;

  // Returns a descriptor that becomes readable when a signal has arrived.
  int fd() const { return fd_; }
  // Returns the next signal that has arrived, or no value if there is none. Does not block.
  std::optional<int> Take();

 private:
  StopSignals(int fd, const sigset_t& before) : fd_(fd), before_(before) {}

  int fd_;
  sigset_t before_;
};

}  // namespace sluice::app
