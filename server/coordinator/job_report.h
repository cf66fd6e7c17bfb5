// SPDX-License-Identifier: Apache-2.0
// JobReport: a job's history and the causes of its slowness, for the status page.
#pragma once

#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/job_history.h"
#include "server/coordinator/job_status.h"
#include "server/coordinator/job_warnings.h"

namespace sluice::server {

struct JobReport {
  std::vector<JobWarning> warnings{};
  std::vector<HistoryPoint> history{};
  std::vector<std::optional<MemberPace>> paces{};  // By rank.
};

// Returns the report of a job. For `silence`, see WarningsOf.
JobReport MakeReport(const JobStatus& status, const JobHistory& history, absl::Duration silence);

}  // namespace sluice::server
