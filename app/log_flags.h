// SPDX-License-Identifier: Apache-2.0
// The flags that control a program's log and its format.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"

namespace CLI {
class App;
}

namespace sluice::app {

struct LogFlags {
  LogLevel lowest = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;

  LogOptions OptionsFor(std::string training_job) const;
};

// Returns the names of the log levels, from the lowest one on.
std::vector<std::string> LogLevelNames();

// Adds --log-level, --log-format and --quiet. `flags` must stay alive while the command line is
// parsed.
void AddLogFlags(CLI::App* app, LogFlags* flags);

}  // namespace sluice::app
