// What makes a mapped job whole: defaults, missing keys, keys that do not belong together, the
// baseline, and whether this version can run it.
#pragma once

#include "absl/strings/string_view.h"
#include "job/file/problems.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {

// Completes `*job`, where every given key has passed the mapper: writes out defaults, applies the
// baseline and switches compression off if `dense`, and removes the baseline. Adds what is wrong to
// `*problems`.
void CompleteJob(bool dense, const Places& places, v1::JobSpec* job, Problems* problems);

}  // namespace sluice::job
