// Sockets that listen for an HttpServer, and whom they let in.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

struct Listener {
  int fd = -1;  // Does not block.
  int port = 0;
};

// The host of HOST:PORT, an IPv6 address without its brackets.
std::string HostOf(absl::string_view listen);

// UNAVAILABLE: cannot listen there. INVALID_ARGUMENT: not HOST:PORT.
absl::StatusOr<Listener> Listen(const std::string& listen);

struct Accepted {
  int fd = -1;             // Does not block. -1: there is none now.
  bool exhausted = false;  // There may be one, but the process has no descriptor for it.
  std::string peer{};      // The same for connections that count together.
};

Accepted Accept(int listener);

}  // namespace sluice
