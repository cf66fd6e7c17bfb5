// SPDX-License-Identifier: Apache-2.0
// Jobs whose workers run a user's own program. That program defines the model, the data and the
// length of the run, so the job file need not name them.
#pragma once

#include "absl/strings/string_view.h"
#include "job/file/problems.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {

// Returns whether the job's workers run a user's own program. This is the case if the file names
// neither a model nor data, or if the model is `custom`. Sets the model and the data to `custom` if
// the file names neither.
bool CompleteOwnProgram(v1::JobSpec* job);

// Reports a job with a `command` that also names one of Sluice's models or a data set, or whose
// command cannot be executed.
void CheckOwnCommand(const v1::JobSpec& job, const Places& places, Problems* problems);

// Returns whether the user's program defines the key at `path`, so that the file may omit the key.
bool IsTheProgramsOwn(absl::string_view path);

}  // namespace sluice::job
