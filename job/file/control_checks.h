// SPDX-License-Identifier: Apache-2.0
// Checks that the keys of a job file's `control` section are consistent with each other and with
// the rest of the job.
#pragma once

#include <functional>

#include "absl/strings/string_view.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {

// Reports a problem with the key at `path`.
using FailAt = std::function<void(absl::string_view path, absl::string_view what)>;

// `job` must have its defaults, and each key on its own must be valid.
void CheckControl(const v1::JobSpec& job, const FailAt& fail);

}  // namespace sluice::job
