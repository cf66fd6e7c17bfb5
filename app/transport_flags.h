// The flags that every program with connections has.
#pragma once

#include "net/grpc/transport_options.h"

namespace CLI {
class App;
}

namespace sluice::app {

// --tls-cert, --tls-key, --tls-ca and --token-file. `options` must outlive the parsing.
void AddTransportFlags(CLI::App* app, net::TransportOptions* options);

}  // namespace sluice::app
