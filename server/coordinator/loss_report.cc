// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/loss_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::server {

void LossReport::KeepFirst() {
  if (silent_.empty()) return;
  silent_.resize(1);
  others_.clear();
}

std::string LossReport::Text() const {
  std::vector<std::string> parts = others_;
  if (!silent_.empty()) {
    parts.insert(parts.begin(),
                 absl::StrCat(absl::StrJoin(silent_, " and "), " did not report for ",
                              absl::FormatDuration(lease_), " (server.lease_timeout)"));
  }
  return absl::StrJoin(parts, ", and ");
}

}  // namespace sluice::server
