// SPDX-License-Identifier: Apache-2.0
#include "app/stop_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"

namespace sluice::app {

absl::StatusOr<StopSignals> StopSignals::Catch() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&wanted, signal);
  sigset_t before;
  if (::pthread_sigmask(SIG_BLOCK, &wanted, &before) != 0) {
    return absl::InternalError("cannot block the stop signals");
  }
  const int fd = ::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return absl::ErrnoToStatus(error, "cannot receive the stop signals");
  }
  return StopSignals(fd, before);
}

StopSignals::StopSignals(StopSignals&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), before_(other.before_) {}

StopSignals::~StopSignals() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> StopSignals::Take() {
  signalfd_siginfo info{};
  if (::read(fd_, &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace sluice::app
