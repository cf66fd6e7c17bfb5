// SPDX-License-Identifier: Apache-2.0
// Conversion of a completed job to the plain JobSpec that programs use.
#pragma once

#include "job/job_spec.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {

// CompleteJob must have found no problem in `job`.
JobSpec ConvertJob(const v1::JobSpec& job);
// The keys of `control` must be complete and of the right type.
ControlSpec ConvertControl(const v1::ControlSpec& control);
// The keys of `guard` must be complete and of the right type.
GuardSpec ConvertGuard(const v1::JobSpec& job);
// The `merge_` keys must be complete and of the right type.
MergeSpec ConvertMerge(const v1::JobSpec& job);

}  // namespace sluice::job
