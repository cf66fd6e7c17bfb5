// SPDX-License-Identifier: Apache-2.0
// Writes a completed job as complete YAML, in the order of the schema.
#pragma once

#include <string>

#include "sluice/v1/job.pb.h"

namespace sluice::job {

std::string JobText(const v1::JobSpec& job);

// Hashes the job's text without the keys that may differ between the job's processes: ports, and
// the paths of data and results.
uint64_t HashJob(const v1::JobSpec& job);

}  // namespace sluice::job
