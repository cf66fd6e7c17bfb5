// SPDX-License-Identifier: Apache-2.0
// GuardedPort: a port of a gRPC server with limits on connections (connection_table.h).
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "net/grpc/transport.h"
#include "server/rpc/connection_acceptor.h"

namespace sluice::server {

class GuardedPort {
 public:
  // Listens on HOST:PORT. Fails in the same cases as ListenOnAll.
  static absl::StatusOr<std::unique_ptr<GuardedPort>> Open(const std::string& listen,
                                                           const ConnectionLimits& limits,
                                                           std::chrono::milliseconds unheard,
                                                           const Logger& logger);

  // Adds the port to the server and sets the builder's interceptors. A call that `transport` does
  // not allow ends with the error of `transport`. Sluice's services refuse such calls themselves
  // (refused_call.h); this port refuses calls to other services. The server of `builder` must start
  // before Start, shut down after Stop, and be destroyed before this object.
  void AddTo(grpc::ServerBuilder* builder, const std::shared_ptr<const net::Transport>& transport);
  void Start();
  void Stop() { acceptor_.Stop(); }

  // Records an allowed call from `peer`. For services whose interceptors do not know the peer.
  void Admit(const std::string& peer);

  int port() const { return acceptor_.port(); }

 private:
  GuardedPort(std::vector<net::Listener> listeners, const ConnectionLimits& limits,
              std::chrono::milliseconds unheard, const Logger& logger)
      : acceptor_(std::move(listeners), limits, unheard, logger) {}

  // Each taker handles one connection at a time.
  std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>> takers_;
  ConnectionAcceptor acceptor_;
};

}  // namespace sluice::server
