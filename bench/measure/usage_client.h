// SPDX-License-Identifier: Apache-2.0
// UsageClient: asks servers for their processor time, in total and by stage of exchanges, and for
// their memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "net/grpc/transport.h"
#include "protocol/stage_times.h"

namespace sluice::bench {

// Sums over all servers since each server started.
struct ServersUsage {
  double cpu_seconds = 0;
  protocol::StageSeconds stages{};
  uint64_t peak_rss_bytes = 0;  // Memory of the largest server.
};

// Not thread-safe.
class UsageClient {
 public:
  // `addresses` are HOST:PORT. Ignores proxies.
  explicit UsageClient(
      const std::vector<std::string>& addresses,
      const std::shared_ptr<const net::Transport>& transport = net::Transport::Plain());
  ~UsageClient();

  // Waits up to `timeout` for each server. If a server does not answer, the error names it.
  absl::StatusOr<ServersUsage> Ask(absl::Duration timeout);

 private:
  struct Server;
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace sluice::bench
