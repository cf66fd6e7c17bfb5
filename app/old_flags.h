// SPDX-License-Identifier: Apache-2.0
// Flags that had a different name in the last release. An old name still works until
// kOldNamesRemovedIn, but --help does not show it, and using it prints one line on stderr with the
// new name. docs/upgrading.md lists the old names.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice::app {

// Prints "--metrics-listen is now called --http-listen; release 0.3 no longer takes the old name".
void WarnOldFlag(const std::string& old_name, const std::string& new_name);

namespace internal {

inline CLI::Option* Hide(CLI::App* app, CLI::Option* option, const std::string& old_name,
                         const std::string& new_name) {
  return option->group("")->excludes(app->get_option(new_name))->each([=](const std::string&) {
    WarnOldFlag(old_name, new_name);
  });
}

}  // namespace internal

// Adds the old name of an option. `app` must already have the option `new_name` with the same
// target. A command line with both names is a usage error.
template <typename Target>
CLI::Option* AddOldOption(CLI::App* app, const std::string& old_name, const std::string& new_name,
                          Target* target) {
  return internal::Hide(app, app->add_option(old_name, *target), old_name, new_name);
}

inline CLI::Option* AddOldFlag(CLI::App* app, const std::string& old_name,
                               const std::string& new_name, bool* target) {
  return internal::Hide(app, app->add_flag(old_name, *target), old_name, new_name);
}

}  // namespace sluice::app
