// YamlSource: a text with YAML in it and its name, turned into one node; knows how to call a place
// in it.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::job {

// Errors are INVALID_ARGUMENT: not one document of YAML, not text, or larger than kMaxJobFileSize.
// Nothing throws.
absl::StatusOr<YAML::Node> ParseYaml(absl::string_view text, absl::string_view name);

// Calls a place: "job.yaml:12:3" in a file, the whole argument for `--set`.
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
