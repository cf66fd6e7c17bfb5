// SPDX-License-Identifier: Apache-2.0
// Problems: collects the problems of a job file, so that a user sees all of them at once. Also
// collects warnings about keys that a later release will not accept.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::job {

class Problems {
 public:
  static constexpr size_t kMax = 20;  // Beyond this limit, problems are only counted.

  // Adds a problem. `where` is, for example, "job.yaml:12:3" or "--set a=b".
  void Add(absl::string_view where, absl::string_view what);

  // Adds a warning. The class keeps at most kMax warnings and drops the rest.
  void Warn(absl::string_view where, absl::string_view what);
  const std::vector<std::string>& warnings() const { return warnings_; }

  bool empty() const { return lines_.empty(); }
  bool full() const { return more_; }
  // Returns OK, or INVALID_ARGUMENT with one problem per line, in the order in which they were
  // added.
  absl::Status ToStatus() const;

 private:
  std::vector<std::string> lines_;
  std::vector<std::string> warnings_;
  bool more_ = false;
};

// The place where each key of a job was given, by path ("optimizer.lr").
class Places {
 public:
  explicit Places(absl::string_view file_name) : file_name_(file_name) {}

  void Set(absl::string_view path, absl::string_view where) {
    places_[std::string(path)] = std::string(where);
  }
  // Adds the places of keys that this object does not have.
  void AddBelow(const Places& below) { places_.insert(below.places_.begin(), below.places_.end()); }
  bool Has(absl::string_view path) const { return places_.count(std::string(path)) > 0; }
  // Returns the place of the key. If the key was not given, returns the place of the nearest
  // enclosing section, or else the file.
  std::string Find(absl::string_view path) const;

 private:
  const std::string file_name_;
  std::map<std::string, std::string> places_;
};

}  // namespace sluice::job
