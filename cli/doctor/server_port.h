// SPDX-License-Identifier: Apache-2.0
// ServerPort: a gRPC server for a single service and a few calls, with limits on all that strangers
// can send.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "net/grpc/transport.h"

namespace sluice::cli {

class ServerPort {
 public:
  // `service` must outlive the port. Fails with UNAVAILABLE if the address is taken or belongs to
  // another machine, and with INVALID_ARGUMENT if `listen` is not HOST:PORT.
  static absl::StatusOr<std::unique_ptr<ServerPort>> Open(const std::string& listen,
                                                          const net::Transport& transport,
                                                          grpc::Service* service);
  // Cancels the calls that are open.
  ~ServerPort();

  const std::string& address() const { return address_; }  // HOST:PORT with the actual port.
  int port() const { return port_; }

 private:
  ServerPort(std::unique_ptr<grpc::Server> server, std::string address, int port)
      : server_(std::move(server)), address_(std::move(address)), port_(port) {}

  const std::unique_ptr<grpc::Server> server_;
  const std::string address_;
  const int port_;
};

}  // namespace sluice::cli
