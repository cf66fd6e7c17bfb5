// JobWarnings: findings about a running job that a person should know, in plain words. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/job_history.h"
#include "server/coordinator/job_status.h"

namespace sluice::server {

struct JobWarning {
  // kProblem: something is wrong. kSlow: a cause of slow steps. kNote: other information.
  enum class Kind { kProblem, kSlow, kNote };
  Kind kind = Kind::kNote;
  std::string text;
  std::string action{};  // What a person can do about it; empty if nothing is to be done.
};

absl::string_view ToString(JobWarning::Kind kind);  // problem, slow, note

// Returns the warnings, the most serious first. `silence` is the longest time that a live process
// may send no report.
std::vector<JobWarning> WarningsOf(const JobStatus& status, const JobHistory& history,
                                   absl::Duration silence);

}  // namespace sluice::server
