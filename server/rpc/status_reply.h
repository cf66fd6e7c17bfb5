// SPDX-License-Identifier: Apache-2.0
// Converts a status to the reply of GetStatus. There is no conversion back, because clients read
// the message itself.
#pragma once

#include <vector>

#include "server/coordinator/job_status.h"
#include "server/coordinator/job_warnings.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::server {

void StatusToProto(const JobStatus& status, const std::vector<JobWarning>& warnings,
                   v1::GetStatusReply* reply);

}  // namespace sluice::server
