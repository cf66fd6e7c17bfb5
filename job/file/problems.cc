// SPDX-License-Identifier: Apache-2.0
#include "job/file/problems.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::job {

void Problems::Add(absl::string_view where, absl::string_view what) {
  if (lines_.size() < kMax) {
    lines_.push_back(absl::StrCat(where, ": ", what));
  } else {
    more_ = true;
  }
}

void Problems::Warn(absl::string_view where, absl::string_view what) {
  if (warnings_.size() < kMax) warnings_.push_back(absl::StrCat(where, ": ", what));
}

absl::Status Problems::ToStatus() const {
  if (lines_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(absl::StrJoin(lines_, "\n"), more_ ? "\nand more problems" : ""));
}

std::string Places::Find(absl::string_view path) const {
  while (!path.empty()) {
    const auto place = places_.find(std::string(path));
    if (place != places_.end()) return place->second;
    const size_t end = path.find_last_of(".[");
    path = path.substr(0, end == absl::string_view::npos ? 0 : end);
  }
  return file_name_;
}

}  // namespace sluice::job
