// The flags that say what a program logs, and how.
#pragma once

#include <string>

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

// --log-level, --log-format and --quiet. `flags` must outlive the parsing.
void AddLogFlags(CLI::App* app, LogFlags* flags);

}  // namespace sluice::app
