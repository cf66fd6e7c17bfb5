// The flags of the commands about a running job: `sluice status`, `why`, `evict` and `set`.
#pragma once

#include <functional>
#include <string>

#include "cli/launch/console.h"

namespace CLI {
class App;
}

namespace sluice::cli {

// Adds the commands to `app`. The one that is parsed stores its action in `*chosen`, which must
// outlive the parsing.
void AddRunningJobCommands(const ConsoleOptions& console, const std::string& grpc_proxy,
                           CLI::App* app, std::function<int()>* chosen);

}  // namespace sluice::cli
