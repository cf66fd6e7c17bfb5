// SPDX-License-Identifier: Apache-2.0
// YamlSource: a named YAML text that is parsed into one node. The class can describe the place of a
// node in the text.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::job {

// Parses `text`. Fails with INVALID_ARGUMENT if it is not exactly one YAML document, is not text,
// or is larger than kMaxJobFileSize. Never throws.
absl::StatusOr<YAML::Node> ParseYaml(absl::string_view text, absl::string_view name);

// Describes the place of a node: "job.yaml:12:3" in a file, or the whole argument for `--set`.
class YamlSource {
 public:
  static YamlSource File(absl::string_view name) { return YamlSource(name, true); }
  static YamlSource Argument(absl::string_view argument) { return YamlSource(argument, false); }

  std::string At(const YAML::Mark& mark) const;

 private:
  YamlSource(absl::string_view name, bool has_lines) : name_(name), has_lines_(has_lines) {}

  std::string name_;
  bool has_lines_;
};

}  // namespace sluice::job
