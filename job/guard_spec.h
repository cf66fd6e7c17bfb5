// SPDX-License-Identifier: Apache-2.0
// GuardSpec: the job file's `guard` section, which protects a job from the contributions of a
// broken or hostile worker.
#pragma once

#include "job/enums.h"
#include "protocol/job_defaults.h"

namespace sluice::job {

struct GuardSpec {
  GuardPolicy policy = GuardPolicy::kOff;
  // A contribution is an outlier if its norm exceeds the median norm by this factor.
  double limit = protocol::defaults::kGuardLimit;

  bool on() const { return policy != GuardPolicy::kOff; }
  // Returns true if results may differ from the plain mean of all contributions.
  bool changes_results() const {
    return policy == GuardPolicy::kClip || policy == GuardPolicy::kSkip;
  }
};

}  // namespace sluice::job
