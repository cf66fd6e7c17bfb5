// SPDX-License-Identifier: Apache-2.0
// Relay: runs a relay in a process: the servers of its rack, a worker session with the parent job,
// and the thread between them. If a failure on either side can be repaired from a checkpoint, the
// rack's members join the relay again, the relay joins the parent job again, and both continue from
// the step that the parent job chooses. See docs/protocol.md, "Relays". Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"
#include "job/job_spec.h"
#include "net/grpc/transport.h"
#include "server/rpc/server.h"

namespace sluice::relay {

struct RelayOptions {
  job::JobSpec job{};  // The whole job.
  uint32_t relay = 0;
  // host:port for the workers of the rack. Port 0 selects any free port. The rack's other shards
  // use free ports on the same host.
  std::string listen{};
  std::string advertise{};  // As in ServerOptions.
  std::string upstream{};   // host:port of the job's shard 0.
  std::shared_ptr<const net::Transport> transport = net::Transport::Plain();       // To the job.
  std::shared_ptr<const net::Transport> rack_transport = net::Transport::Plain();  // Of the rack.
  bool allow_anonymous = false;
  bool reflection = false;
  bool supervised = false;  // As in ServerOptions.
  LogOptions log{};
  uint64_t http_connections = 0;  // As in ServerOptions.
  std::string software_version{};
  uint64_t job_uid = 0;  // A random number that identifies the rack's run.
};

class Relay {
 public:
  // Fails as Server::Start does, and with INVALID_ARGUMENT if the job has no relay of this number.
  static absl::StatusOr<std::unique_ptr<Relay>> Start(RelayOptions options, const Clock* clock);
  // Stops without reporting to the job. A job with checkpoints then waits for a restart.
  virtual ~Relay() = default;

  virtual std::string address() const = 0;  // Address for the rack's workers.
  // Returns nullopt while the relay runs, then OK if the job finished or the reason for the
  // failure. Call this repeatedly, because it also performs work that is due.
  virtual std::optional<absl::Status> Outcome() = 0;
  // Ends the job with `reason`, both in the rack and in the parent job. Outcome then returns a
  // value.
  virtual void Stop(absl::string_view reason) = 0;
  virtual const server::Server& rack() const = 0;  // Shard 0 of the rack, for the pages.
};

}  // namespace sluice::relay
