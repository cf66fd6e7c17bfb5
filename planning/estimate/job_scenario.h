// SPDX-License-Identifier: Apache-2.0
// Takes the part of a scenario that a job file determines from the job.
#pragma once

#include "absl/status/status.h"
#include "job/job_spec.h"
#include "planning/estimate/scenario.h"

namespace sluice::planning {

// Sets workers, shards, codecs, local steps, relays with their sites, the optimizer's place and
// what shards keep. Overrides of
// single tensors have no effect. Other fields do not change. Fails with FAILED_PRECONDITION for a
// job whose workers do not wait for each other, because the model covers only steps that all
// workers take together, and with INVALID_ARGUMENT for relays with unequal racks.
absl::Status SetFromJob(const job::JobSpec& job, Scenario* scenario);

}  // namespace sluice::planning
