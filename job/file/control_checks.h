// What goes together in the `control` section of a job file, and with the rest of the job.
#pragma once

#include <functional>

#include "absl/strings/string_view.h"
#include "sluice/v1/job.pb.h"

namespace sluice::job {

// What is wrong, and with which key.
using FailAt = std::function<void(absl::string_view path, absl::string_view what)>;

// `job` has its defaults, and every key by itself is as it should be.
void CheckControl(const v1::JobSpec& job, const FailAt& fail);

}  // namespace sluice::job
