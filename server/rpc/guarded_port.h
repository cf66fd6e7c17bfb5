// GuardedPort: a port of a gRPC server, with limits of connections (connection_table.h).
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "net/grpc/transport.h"
#include "server/rpc/connection_acceptor.h"

namespace sluice::server {

// IP:PORT of what ServerContext::peer says; empty if it says something else.
std::string AddressOfPeer(absl::string_view peer);

class GuardedPort {
 public:
  // Listens on HOST:PORT. Errors as ListenOnAll.
  static absl::StatusOr<std::unique_ptr<GuardedPort>> Open(const std::string& listen,
                                                           const ConnectionLimits& limits,
                                                           std::chrono::milliseconds unheard,
                                                           const Logger& logger);

  // Calls that `transport` does not allow end with its refusal: those of Sluice's services by
  // themselves (refused_call.h), others here. The server that `builder` makes must be started
  // before Start, be shut down after Stop, and be gone before this object. Takes the builder's
  // interceptors.
  void AddTo(grpc::ServerBuilder* builder, const std::shared_ptr<const net::Transport>& transport);
  void Start();
  void Stop() { acceptor_.Stop(); }

  // A call from there is allowed by a service whose interceptors know no peer.
  void Admit(const std::string& peer);

  int port() const { return acceptor_.port(); }

 private:
  GuardedPort(std::vector<net::Listener> listeners, const ConnectionLimits& limits,
              std::chrono::milliseconds unheard, const Logger& logger)
      : acceptor_(std::move(listeners), limits, unheard, logger) {}

  // Each takes one connection at a time.
  std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>> takers_;
  ConnectionAcceptor acceptor_;
};

}  // namespace sluice::server
