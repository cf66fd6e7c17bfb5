// SPDX-License-Identifier: Apache-2.0
// PortProbe: checks that a gRPC port of this process still answers. A listener can stop answering
// while the process continues to run. The kernel then still accepts connections, but the program
// never sees them.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice::net {

class PortProbe {
 public:
  // Prepares the probe. `listen` is the HOST:PORT with which the port was opened, and `port` is the
  // actual port. HOST is resolved only here, so that a slow name server cannot affect later probes.
  PortProbe(absl::string_view listen, int port, bool tls);

  // Connects, sends a client's first bytes, and waits for a byte or for the end of the connection.
  // Returns OK if either arrives, UNAVAILABLE if nothing listens or neither arrives within
  // `patience`, RESOURCE_EXHAUSTED if this process has no descriptor for the probe, and CANCELLED
  // if `stop` is set.
  absl::Status Ask(absl::Duration patience, const std::atomic<bool>& stop) const;

  const std::string& name() const { return name_; }  // HOST:PORT of the probed port.

 private:
  struct Address {
    sockaddr_storage bytes;
    socklen_t size;
  };

  absl::Status AskAt(const Address& address, absl::Time until, const std::atomic<bool>& stop) const;

  const std::string name_;
  std::string greeting_;
  std::vector<Address> addresses_;
};

}  // namespace sluice::net
