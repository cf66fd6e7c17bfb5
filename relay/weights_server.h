// SPDX-License-Identifier: Apache-2.0
// WeightsServer: runs a relay that serves only followers (follow/rpc/weights_relay.h) on a port of
// its own. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "follow/follower_figures.h"
#include "net/grpc/transport.h"

namespace sluice::relay {

struct WeightsServerOptions {
  std::string upstream{};  // host:port of the job's shard 0, or of another relay for followers.
  std::string listen{};    // host:port for followers. Port 0 selects any free port.
  // `transport` connects to the job, and `own_transport` accepts followers.
  std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
  std::shared_ptr<const net::Transport> own_transport = net::Transport::Plain();
  bool allow_anonymous = false;
  uint32_t followers_max = 64;
  uint64_t http_connections = 0;  // As in ServerOptions.
  absl::Duration patience = absl::Seconds(60);
};

class WeightsServer {
 public:
  // Waits for the job. Fails with UNAVAILABLE if nothing answers within the patience or the port
  // cannot be used, with INVALID_ARGUMENT if options exclude each other, with RESOURCE_EXHAUSTED if
  // there are too few file descriptors, and otherwise with the reason of the job's server.
  static absl::StatusOr<std::unique_ptr<WeightsServer>> Start(WeightsServerOptions options,
                                                              const Clock* clock, Logger logger);
  // Ends open calls at once.
  virtual ~WeightsServer() = default;

  virtual int port() const = 0;
  virtual std::string job_name() const = 0;
  // Returns nullopt while the relay runs, then OK once the job has finished and followers have its
  // last version or had time to fetch it, or the reason for the failure. Call this repeatedly.
  virtual std::optional<absl::Status> Outcome() = 0;
  virtual follow::FollowerFigures figures() const = 0;
};

}  // namespace sluice::relay
