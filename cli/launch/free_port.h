// SPDX-License-Identifier: Apache-2.0
// FreePort: reserves a loopback TCP port for a process that is about to start.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::cli {

// Holds the port until Release or destruction, so that consecutive reservations get different
// ports. Between Release and the child's listen call, another program could take the port. The
// child would then report an error and end. Share avoids this problem.
class FreePort {
 public:
  // Reserves the port `wanted`, or any free port if `wanted` is 0. Fails with ALREADY_EXISTS if the
  // port is taken.
  static absl::StatusOr<FreePort> Reserve(uint16_t wanted = 0);
  ~FreePort() { Release(); }
  FreePort(FreePort&& other) noexcept;
  FreePort& operator=(FreePort&&) = delete;

  uint16_t port() const { return port_; }
  void Release();
  // Keeps the port while a child listens on it with SO_REUSEADDR, as servers do. While the child
  // ends and is restarted, no other program can get the port, not even as the local end of a
  // connection.
  absl::Status Share();

 private:
  FreePort(int fd, uint16_t port) : fd_(fd), port_(port) {}

  int fd_;
  uint16_t port_;
};

}  // namespace sluice::cli
