// LearningRate: the rate of each step of a job, a function of the job file alone.
#pragma once

#include <cstdint>

#include "job/optimizer_spec.h"

namespace sluice::worker {

// For step `step` of `total`, counted from 1. `base` is the rate of the optimizer: what constant
// keeps, step and cosine start from, and one_cycle peaks at. During the first `warmup_steps` the
// rate rises linearly towards `base`; the schedule then has the steps that are left.
//   constant   base
//   step       base · gamma^k after k · step_size steps
//   cosine     from base to final_lr, on half a cosine
//   one_cycle  from base / 25 to base over warmup_fraction of the steps, then to final_lr, each on
//   half a cosine
double LearningRate(const job::LrScheduleSpec& schedule, double base, uint64_t step,
                    uint64_t total);

}  // namespace sluice::worker
