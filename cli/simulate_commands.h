// SPDX-License-Identifier: Apache-2.0
// The flags of `sluice simulate`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace sluice::cli {

// Adds the command to `app`. Parsing it stores its action in `*chosen`. Both must outlive the
// parsing.
void AddSimulateCommand(CLI::App* app, std::function<int()>* chosen);

}  // namespace sluice::cli
