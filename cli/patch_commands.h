// SPDX-License-Identifier: Apache-2.0
// The flags of `sluice patch`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace sluice::cli {

// Adds the command to `app`. The subcommand that is parsed stores its action in `*chosen`. Both
// must outlive the parsing.
void AddPatchCommands(CLI::App* app, std::function<int()>* chosen);

}  // namespace sluice::cli
