// FreePort: a loopback TCP port that a process we are about to start can listen on.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::cli {

// Holds the port until Release or destruction, so that several in a row differ. Between Release and
// the listening of the child another program could take it; then the child says so and ends. A
// shared port is safe from that.
class FreePort {
 public:
  // `wanted` if it is not 0; else any. ALREADY_EXISTS if it is taken.
  static absl::StatusOr<FreePort> Reserve(uint16_t wanted = 0);
  ~FreePort() { Release(); }
  FreePort(FreePort&& other) noexcept;
  FreePort& operator=(FreePort&&) = delete;

  uint16_t port() const { return port_; }
  void Release();
  // Keeps the port while a child listens on it as servers do (SO_REUSEADDR): nobody else is given
  // it, not even as the near end of a connection, when the child dies and is started again.
  absl::Status Share();

 private:
  FreePort(int fd, uint16_t port) : fd_(fd), port_(port) {}

  int fd_;
  uint16_t port_;
};

}  // namespace sluice::cli
