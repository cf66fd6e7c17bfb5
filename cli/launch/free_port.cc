// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::cli {

absl::StatusOr<FreePort> FreePort::Reserve(uint16_t wanted) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "no socket");
  if (wanted != 0) {
    // Servers set this option too. Without it, old connections of the last run would make the port
    // appear taken.
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(wanted);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  sockaddr* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, generic, size) != 0 || ::getsockname(fd, generic, &size) != 0) {
    const int error = errno;
    ::close(fd);
    if (error == EADDRINUSE) {
      return absl::AlreadyExistsError(absl::StrCat("port ", wanted, " on 127.0.0.1 is taken"));
    }
    return absl::ErrnoToStatus(error,
                               absl::StrCat("cannot reserve port ", wanted, " on 127.0.0.1"));
  }
  return FreePort(fd, ntohs(address.sin_port));
}

FreePort::FreePort(FreePort&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}

absl::Status FreePort::Share() {
  const int on = 1;
  if (::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot share port ", port_));
  }
  return absl::OkStatus();
}

void FreePort::Release() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace sluice::cli
