// SPDX-License-Identifier: Apache-2.0
#include "app/log_flags.h"

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/enum_names.h"

namespace sluice::app {

LogOptions LogFlags::OptionsFor(std::string training_job) const {
  return {.lowest = lowest, .format = format, .training_job = std::move(training_job)};
}

std::vector<std::string> LogLevelNames() {
  const std::vector<absl::string_view> names = AllNames<LogLevel>();
  return {names.begin(), names.end()};
}

void AddLogFlags(CLI::App* app, LogFlags* flags) {
  CLI::Option* const level = app->add_option_function<std::string>(
                                    "--log-level",
                                    [flags](const std::string& name) {
                                      flags->lowest =
                                          FindByName<LogLevel>(name).value_or(LogLevel::kInfo);
                                    },
                                    "Lowest level to log: debug, info, warning or error [info]")
                                 ->check(CLI::IsMember(LogLevelNames()))
                                 ->type_name("LEVEL");
  app->add_option_function<std::string>(
         "--log-format",
         [flags](const std::string& name) {
           flags->format = name == "json" ? LogFormat::kJson : LogFormat::kText;
         },
         "Log format: text for people, json for log collectors (docs/operations.md) [text]")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORMAT");
  app->add_flag_callback(
         "--quiet", [flags] { flags->lowest = LogLevel::kWarning; }, "As --log-level warning")
      ->excludes(level);
}

}  // namespace sluice::app
