// SPDX-License-Identifier: Apache-2.0
// Flags shared by all programs that open connections.
#pragma once

#include "net/grpc/transport_options.h"

namespace CLI {
class App;
}

namespace sluice::app {

// Adds --tls-cert, --tls-key, --tls-ca and --token-file. `options` must stay alive while the
// command line is parsed.
void AddTransportFlags(CLI::App* app, net::TransportOptions* options);

}  // namespace sluice::app
