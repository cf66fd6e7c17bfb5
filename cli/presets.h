// SPDX-License-Identifier: Apache-2.0
// `sluice presets`: prints the presets that a job file may name.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {

// Returns one line for each preset, with its name and its method. The text ends with a newline.
std::string FormatPresets();

// Returns the keys of a preset, with comments. Fails with INVALID_ARGUMENT if no preset has this
// name.
absl::StatusOr<std::string> FormatPreset(absl::string_view name);

}  // namespace sluice::cli
