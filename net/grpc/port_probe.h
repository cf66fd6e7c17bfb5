// PortProbe: asks a gRPC port of this process whether anything answers there. A listener can go
// deaf while the process goes on: connections are then taken by the kernel and by nothing else.
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
  // `listen` is HOST:PORT as the port was opened; `port` is the one that it got. Looks HOST up,
  // once: a name server that is slow later says nothing of this process.
  PortProbe(absl::string_view listen, int port, bool tls);

  // Connects, says what a client says first, and waits for a byte or an end. OK: one came.
  // UNAVAILABLE: none within `patience`, or nothing listens. RESOURCE_EXHAUSTED: this process has
  // no descriptor to ask with. CANCELLED: `stop` was set.
  absl::Status Ask(absl::Duration patience, const std::atomic<bool>& stop) const;

  const std::string& name() const { return name_; }  // HOST:PORT.

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
