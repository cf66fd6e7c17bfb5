// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/job_report.h"

namespace sluice::server {

JobReport MakeReport(const JobStatus& status, const JobHistory& history, absl::Duration silence) {
  JobReport report{.warnings = WarningsOf(status, history, silence), .history = history.Points()};
  for (const MemberStatus& member : status.members) {
    report.paces.push_back(history.Pace(member.rank));
  }
  return report;
}

}  // namespace sluice::server
