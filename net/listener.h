// SPDX-License-Identifier: Apache-2.0
// Sockets that listen on TCP ports, and the connections that these sockets accept.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::net {

struct Listener {
  int fd = -1;  // Non-blocking.
  int port = 0;
};

// Returns the host of HOST:PORT. An IPv6 address is returned without brackets.
std::string HostOf(absl::string_view listen);

// Listens on the first usable address of HOST. Fails with UNAVAILABLE if HOST has no usable
// address, and with INVALID_ARGUMENT if `listen` is not HOST:PORT.
absl::StatusOr<Listener> Listen(const std::string& listen);

// Listens on the same port at all addresses of HOST, except addresses that this machine does not
// have. 0.0.0.0 and [::] cover IPv4 and IPv6. Fails with UNAVAILABLE if the machine has none of the
// addresses or if the port is in use at one of them.
absl::StatusOr<std::vector<Listener>> ListenOnAll(const std::string& listen);

void CloseAll(std::vector<Listener>* listeners);

struct Accepted {
  int fd = -1;  // Non-blocking. -1 if no connection is pending.
  // The error if a pending connection could not be accepted, or 0.
  int error = 0;
  std::string peer{};     // Connections with equal peers count towards the same limit.
  std::string address{};  // IP:PORT; an IPv6 address is in brackets.
};

Accepted Accept(int listener);

// Returns true if `error`, which comes from Accepted, means that the process or the machine has no
// free file descriptor.
bool LacksDescriptors(int error);

}  // namespace sluice::net
