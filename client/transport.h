// SPDX-License-Identifier: Apache-2.0
// Opens the connections of a library, whose program has no flags for them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "net/grpc/transport.h"

namespace sluice::client {

// Works like net::Transport::Open. The proxy is the one that $grpc_proxy names.
absl::StatusOr<std::shared_ptr<const net::Transport>> OpenTransport(net::TransportOptions options,
                                                                    const Logger& logger);

}  // namespace sluice::client
