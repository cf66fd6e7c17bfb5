// Problems: what is wrong with a job file, collected so that a person sees more than the first.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::job {

class Problems {
 public:
  static constexpr size_t kMax = 20;  // Beyond it, problems are only counted as "more".

  // `where`: "job.yaml:12:3" or "--set a=b".
  void Add(absl::string_view where, absl::string_view what);

  bool empty() const { return lines_.empty(); }
  bool full() const { return more_; }
  // OK, or INVALID_ARGUMENT with one problem per line, in the order of adding.
  absl::Status ToStatus() const;

 private:
  std::vector<std::string> lines_;
  bool more_ = false;
};

// Where each key of a job was given, by path ("optimizer.lr").
class Places {
 public:
  explicit Places(absl::string_view file_name) : file_name_(file_name) {}

  void Set(absl::string_view path, absl::string_view where) {
    places_[std::string(path)] = std::string(where);
  }
  bool Has(absl::string_view path) const { return places_.count(std::string(path)) > 0; }
  // Of the key, else of the nearest section around it, else the file.
  std::string Find(absl::string_view path) const;

 private:
  const std::string file_name_;
  std::map<std::string, std::string> places_;
};

}  // namespace sluice::job
