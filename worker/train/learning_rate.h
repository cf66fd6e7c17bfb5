// SPDX-License-Identifier: Apache-2.0
// LearningRate: the learning rate of each step of a job. It depends only on the job file.
#pragma once

#include <cstdint>

#include "job/optimizer_spec.h"

namespace sluice::worker {

// Returns the rate of step `step` of `total`, counted from 1. `base` is the optimizer's rate: the
// constant rate, the first rate of step and cosine, and the peak of one_cycle. During the first
// `warmup_steps` the rate rises linearly towards `base`; the schedule then covers the remaining
// steps.
//   constant   base
//   step       base · gamma^k after k · step_size steps
//   cosine     from base to final_lr, on half a cosine
//   one_cycle  from base / 25 to base over warmup_fraction of the steps, then to final_lr, each
//              on half a cosine
double LearningRate(const job::LrScheduleSpec& schedule, double base, uint64_t step,
                    uint64_t total);

}  // namespace sluice::worker
