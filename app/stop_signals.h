// StopSignals: Ctrl-C and its like as something to poll instead of a sudden end.
#pragma once

#include <signal.h>

#include <optional>

#include "absl/status/statusor.h"

namespace sluice::app {

// Blocks SIGINT, SIGTERM and SIGHUP for the calling thread and for threads started after; make one
// before any.
class StopSignals {
 public:
  static absl::StatusOr<StopSignals> Catch();
  ~StopSignals();
  StopSignals(StopSignals&& other) noexcept;
  StopSignals& operator=(StopSignals&&) = delete;

  // Readable when one has come.
  int fd() const { return fd_; }
  // The next one that came; does not block.
  std::optional<int> Take();

 private:
  StopSignals(int fd, const sigset_t& before) : fd_(fd), before_(before) {}

  int fd_;
  sigset_t before_;
};

}  // namespace sluice::app
