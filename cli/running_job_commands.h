// SPDX-License-Identifier: Apache-2.0
// The flags of the commands about a running job: `sluice status`, `why`, `drain`, `debug-bundle`,
// `evict` and `set`.
#pragma once

#include <functional>
#include <string>

#include "cli/debug_bundle.h"
#include "cli/launch/console.h"

namespace CLI {
class App;
}

namespace sluice::cli {

// What the commands need to know of their process.
struct ProcessOptions {
  ConsoleOptions console;
  std::string grpc_proxy;
  DebugBundleOptions bundle;  // The values that are not flags.
};

// Adds the commands to `app`. The one that is parsed stores its action in `*chosen`. Both
// must outlive the parsing.
void AddRunningJobCommands(const ProcessOptions& process, CLI::App* app,
                           std::function<int()>* chosen);

}  // namespace sluice::cli
