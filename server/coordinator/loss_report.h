// SPDX-License-Identifier: Apache-2.0
// LossReport: describes the processes of a job that were found to be lost at the same time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace sluice::server {

class LossReport {
 public:
  explicit LossReport(absl::Duration lease) : lease_(lease) {}

  // Adds a process that did not report for a lease.
  void AddSilent(std::string who) { silent_.push_back(std::move(who)); }
  // Adds a clause that describes a loss for another reason.
  void AddOther(std::string clause) { others_.push_back(std::move(clause)); }
  // Keeps only the first silent process, if there is one, because it may have caused the others.
  void KeepFirst();
  bool empty() const { return silent_.empty() && others_.empty(); }
  // Returns a clause about all of them.
  std::string Text() const;

 private:
  absl::Duration lease_;
  std::vector<std::string> silent_;
  std::vector<std::string> others_;
};

}  // namespace sluice::server
