// SPDX-License-Identifier: Apache-2.0
#include "cli/presets.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "job/file/presets.h"

namespace sluice::cli {

std::string FormatPresets() {
  std::string text;
  for (const job::Preset& preset : job::Presets()) {
    absl::StrAppendFormat(&text, "%-17s %s\n", preset.name, preset.method);
  }
  return absl::StrCat(text,
                      "\nIn a job file: preset: NAME. The file's own keys override those of the "
                      "preset, which\n`sluice presets NAME` prints.\n");
}

absl::StatusOr<std::string> FormatPreset(absl::string_view name) {
  const job::Preset* const preset = job::FindPreset(name);
  if (preset != nullptr) return job::PresetText(*preset);
  const std::vector<absl::string_view> names = job::PresetNames();
  const absl::string_view nearest = NearestName(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat("there is no preset '", name, "'; ",
                   nearest.empty() ? "" : absl::StrCat("did you mean '", nearest, "'? "),
                   "known presets: ", absl::StrJoin(names, ", ")));
}

}  // namespace sluice::cli
