// SPDX-License-Identifier: Apache-2.0
// Presets: keys of a job file that make a job train as a published method does. The job's own keys
// override them one by one. Pure data.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice::job {

struct Preset {
  absl::string_view name;
  absl::string_view method;   // Its name as published, and what it does.
  absl::string_view source;   // The paper.
  absl::string_view differs;  // How this preset differs from the paper, one item per line.
  absl::string_view keys;     // YAML.
};

// Returns all presets: those with local steps first.
absl::Span<const Preset> Presets();
std::vector<absl::string_view> PresetNames();
// Returns null if no preset has this name.
const Preset* FindPreset(absl::string_view name);

// Returns the preset as a part of a job file, with comments that explain it.
std::string PresetText(const Preset& preset);

}  // namespace sluice::job
