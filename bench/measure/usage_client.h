// UsageClient: asks servers what they have used: processor time, by stage of exchanges too, and
// memory.
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

// Of all servers together, since each was started.
struct ServersUsage {
  double cpu_seconds = 0;
  protocol::StageSeconds stages{};
  uint64_t peak_rss_bytes = 0;  // The largest one's.
};

// Not thread-safe.
class UsageClient {
 public:
  // `addresses` are HOST:PORT. Goes round any proxy.
  explicit UsageClient(
      const std::vector<std::string>& addresses,
      const std::shared_ptr<const net::Transport>& transport = net::Transport::Plain());
  ~UsageClient();

  // Waits up to `timeout` for each. The error of a server that does not answer names it.
  absl::StatusOr<ServersUsage> Ask(absl::Duration timeout);

 private:
  struct Server;
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace sluice::bench
