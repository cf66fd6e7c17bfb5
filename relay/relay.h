// Relay: a relay as a process runs it: the servers of its rack, a worker's session with the job
// above, and the thread between them. Whatever goes wrong on either side that a checkpoint can
// repair ends in the same way: the rack gathers anew, the relay joins the job above anew, and both
// go on from the step that this says. docs/protocol.md, "Relays". Thread-safe.
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
  job::JobSpec job{};  // The whole one.
  uint32_t relay = 0;
  // host:port, for the workers of the rack; port 0: any that is free. The rack's further shards
  // take free ones beside it.
  std::string listen{};
  std::string advertise{};  // As ServerOptions has it.
  std::string upstream{};   // host:port of the job's shard 0.
  std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
  bool allow_anonymous = false;
  bool reflection = false;
  bool supervised = false;  // As ServerOptions has it.
  LogOptions log{};
  uint64_t http_connections = 0;  // As ServerOptions has it.
  std::string software_version{};
  uint64_t job_uid = 0;  // Random; of the rack's run.
};

class Relay {
 public:
  // Errors as Server::Start. INVALID_ARGUMENT: the job has no such relay.
  static absl::StatusOr<std::unique_ptr<Relay>> Start(RelayOptions options, const Clock* clock);
  // Tells nobody: with checkpoints the job waits for this relay's next process.
  virtual ~Relay() = default;

  virtual std::string address() const = 0;  // What the rack's workers are told.
  // Empty while it runs; then OK (the job finished) or why it failed. To be called again and again:
  // it does what is due.
  virtual std::optional<absl::Status> Outcome() = 0;
  // Ends the job with `reason`, above and below; then Outcome follows.
  virtual void Stop(absl::string_view reason) = 0;
  virtual const server::Server& rack() const = 0;  // Shard 0 of the rack, for pages.
};

}  // namespace sluice::relay
