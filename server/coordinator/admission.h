// Checks that a process which wants to take part in a job belongs to it. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "protocol/job_phase.h"
#include "server/coordinator/coordinator_options.h"

namespace sluice::server {

struct Applicant {
  absl::string_view who;  // For messages.
  absl::string_view job_name;
  uint64_t job_hash = 0;
  absl::string_view version;
};

// Returns why the process cannot take part. `failure`: why the job failed, if it did.
absl::Status CheckSameJob(const CoordinatorOptions& options, protocol::JobPhase phase,
                          absl::string_view failure, const Applicant& applicant);

}  // namespace sluice::server
