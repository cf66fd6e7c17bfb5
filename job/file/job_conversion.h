// A completed job as the plain JobSpec that programs use.
#pragma once

#include "job/job_spec.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {

// For a job that CompleteJob found no problem in.
JobSpec ConvertJob(const v1::JobSpec& job);
// Of a section whose keys are complete and of the right type.
ControlSpec ConvertControl(const v1::ControlSpec& control);

}  // namespace sluice::job
