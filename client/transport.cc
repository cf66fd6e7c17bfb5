// SPDX-License-Identifier: Apache-2.0
#include "client/transport.h"

#include <cstdlib>
#include <utility>

namespace sluice::client {

absl::StatusOr<std::shared_ptr<const net::Transport>> OpenTransport(net::TransportOptions options,
                                                                    const Logger& logger) {
  // A library has no main that could read it.
  const char* const proxy = std::getenv("grpc_proxy");
  options.grpc_proxy = proxy == nullptr ? "" : proxy;
  return net::Transport::Open(options, logger);
}

}  // namespace sluice::client
