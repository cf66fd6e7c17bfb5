// Sockets that listen on TCP ports, and whom they let in.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::net {

struct Listener {
  int fd = -1;  // Does not block.
  int port = 0;
};

// The host of HOST:PORT, an IPv6 address without its brackets.
std::string HostOf(absl::string_view listen);

// At the first address of HOST that can be had. UNAVAILABLE: none can. INVALID_ARGUMENT: not
// HOST:PORT.
absl::StatusOr<Listener> Listen(const std::string& listen);

// At all addresses of HOST, on the same port, but for those that this machine does not have; at
// 0.0.0.0 and [::] for IPv4 and IPv6. UNAVAILABLE: it has none, or the port is taken at one.
absl::StatusOr<std::vector<Listener>> ListenOnAll(const std::string& listen);

void CloseAll(std::vector<Listener>* listeners);

struct Accepted {
  int fd = -1;            // Does not block. -1: there is none now.
  int error = 0;          // Then, if there may be one: why it cannot be had.
  std::string peer{};     // The same for connections that count together.
  std::string address{};  // IP:PORT, an IPv6 address in brackets.
};

Accepted Accept(int listener);

// Of Accepted::error: the process or the machine has no file descriptor left.
bool LacksDescriptors(int error);

}  // namespace sluice::net
