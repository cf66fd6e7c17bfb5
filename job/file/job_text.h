// A completed job as YAML that says everything, in the schema's order.
#pragma once

#include <string>

#include "sluice/v1/job.pb.h"

namespace sluice::job {

std::string JobText(const v1::JobSpec& job);

// Over the job's text without what may differ between its processes: where data and results lie and
// which ports are used.
uint64_t HashJob(const v1::JobSpec& job);

}  // namespace sluice::job
