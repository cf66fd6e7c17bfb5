// SPDX-License-Identifier: Apache-2.0
// Completes a mapped job: fills in defaults, applies the baseline, and reports missing keys, keys
// that exclude each other, and jobs that this version cannot run.
#pragma once

#include "absl/strings/string_view.h"
#include "job/file/problems.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {

// Completes `*job`: writes out defaults and removes the baseline. If `dense`, first applies the
// baseline and switches compression off. The mapper must have accepted every given key. Problems
// are added to `*problems`.
void CompleteJob(bool dense, const Places& places, v1::JobSpec* job, Problems* problems);

}  // namespace sluice::job
