// SPDX-License-Identifier: Apache-2.0
// BundleContents: the files of a debug bundle and a list of what could not be collected. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/bundle/secrets.h"

namespace sluice::cli {

class BundleContents {
 public:
  struct Entry {
    std::string name;  // A path below the bundle's folder, for example "logs-1/shard-0.log".
    std::string text;
  };

  void Add(std::string name, std::string text) {
    files_.push_back({std::move(name), std::move(text)});
  }
  // Records that `what` is not in the bundle. Control characters are escaped.
  void Miss(const std::string& what, const std::string& why);
  Secrets& secrets() { return secrets_; }

  const std::vector<std::string>& missing() const { return missing_; }
  // Returns all files without the secrets, and missing.txt.
  std::vector<Entry> Files() const;

 private:
  std::vector<Entry> files_;
  std::vector<std::string> missing_;
  Secrets secrets_;
};

}  // namespace sluice::cli
