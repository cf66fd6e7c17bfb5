// SPDX-License-Identifier: Apache-2.0
// Checks that the keys of a job file suit the job's mode.
#pragma once

#include "job/file/control_checks.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {

// `job` must have its defaults, and each key on its own must be valid.
void CheckMode(const v1::JobSpec& job, const FailAt& fail);

}  // namespace sluice::job
