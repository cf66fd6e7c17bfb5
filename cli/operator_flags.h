// The flags of the commands for operators of a running job: `sluice drain`.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "cli/status.h"

namespace CLI {
class App;
}

namespace sluice::cli {

// A command that asks a coordinator, and the values of the flags that it already has.
using StatusCommand = std::pair<CLI::App*, std::shared_ptr<StatusOptions>>;

// Adds the command's other flags. If the user chooses the command, the parser sets `chosen`.
void AddDrainFlags(const StatusCommand& command, std::function<int()>* chosen);

}  // namespace sluice::cli
