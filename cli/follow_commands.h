// SPDX-License-Identifier: Apache-2.0
// The flags of `sluice follow`.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace sluice::cli {

// Adds the command to `app`. When it is parsed, it stores its action in `*chosen`. Both must
// outlive the parsing. `grpc_proxy` is the proxy of the environment, or empty.
void AddFollowCommand(CLI::App* app, const std::string& grpc_proxy, std::function<int()>* chosen);

}  // namespace sluice::cli
