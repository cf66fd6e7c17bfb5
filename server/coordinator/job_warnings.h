// SPDX-License-Identifier: Apache-2.0
// JobWarnings: findings about a running job that a person should know, in plain words. Pure.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/enum_names.h"
#include "server/coordinator/job_history.h"
#include "server/coordinator/job_status.h"

namespace sluice::server {

// Sections of docs/operations.md that say what to do. The chart's alerts name the same sections.
enum class Runbook {
  kNone,
  kJobFailed,
  kNoProgress,
  kProcessLost,
  kCheckpointOld,
  kCheckpointGivenUp,
  kRecordUnwritten,
  kLossNotFinite,
  kWaitsForOneWorker,
  kWaitsOnLink,
};

// The names are the anchors of the sections.
constexpr auto NamesOf(Runbook) {
  return std::to_array<EnumName<Runbook>>({{Runbook::kNone, ""},
                                           {Runbook::kJobFailed, "sluicejobfailed"},
                                           {Runbook::kNoProgress, "sluicenoprogress"},
                                           {Runbook::kProcessLost, "sluiceprocesslost"},
                                           {Runbook::kCheckpointOld, "sluicecheckpointold"},
                                           {Runbook::kCheckpointGivenUp, "sluicecheckpointgivenup"},
                                           {Runbook::kRecordUnwritten, "sluicerecordunwritten"},
                                           {Runbook::kLossNotFinite, "sluicelossnotfinite"},
                                           {Runbook::kWaitsForOneWorker, "sluicewaitsforoneworker"},
                                           {Runbook::kWaitsOnLink, "sluicewaitsonlink"}});
}

struct JobWarning {
  // kProblem: something is wrong. kSlow: a cause of slow steps. kNote: other information.
  enum class Kind { kProblem, kSlow, kNote };
  Kind kind = Kind::kNote;
  std::string text;
  std::string action{};  // What a person can do about it; empty if nothing is to be done.
  Runbook runbook = Runbook::kNone;
};

absl::string_view ToString(JobWarning::Kind kind);  // problem, slow, note

// Returns the warnings, the most serious first. `silence` is the longest time that a live process
// may send no report.
std::vector<JobWarning> WarningsOf(const JobStatus& status, const JobHistory& history,
                                   absl::Duration silence);

}  // namespace sluice::server
