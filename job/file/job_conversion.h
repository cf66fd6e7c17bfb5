// A completed job as the plain JobSpec that programs use.
#pragma once

#include "job/job_spec.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// For a job that CompleteJob found no problem in.
JobSpec ConvertJob(const v1::JobSpec& job);

}  // namespace sluice
