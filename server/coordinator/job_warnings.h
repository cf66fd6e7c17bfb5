// What a person should know of a running job, in plain words. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/job_history.h"
#include "server/coordinator/job_status.h"

namespace sluice::server {

struct JobWarning {
  // kProblem: something is wrong. kSlow: what steps lose time to. kNote: how things stand.
  enum class Kind { kProblem, kSlow, kNote };
  Kind kind = Kind::kNote;
  std::string text;
};

absl::string_view ToString(JobWarning::Kind kind);  // problem, slow, note

// In order of weight. `silence`: so long a process that lives may say nothing.
std::vector<JobWarning> WarningsOf(const JobStatus& status, const JobHistory& history,
                                   absl::Duration silence);

}  // namespace sluice::server
