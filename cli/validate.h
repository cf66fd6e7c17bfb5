// SPDX-License-Identifier: Apache-2.0
// `sluice validate`: explains a job file or lists its problems.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "job/file/job_file.h"

namespace sluice::cli {

// Writes the resolved job and a summary, or a list of problems. Returns the exit code: 0 if the job
// can run, with or without warnings; otherwise 2. Each item of `expected` is a "key.key=value", as
// in LoadJobOptions::set, that must already be true in the job. Launchers pass the values that they
// rely on.
int ValidateCommand(const job::LoadJobOptions& options, const std::vector<std::string>& expected,
                    std::ostream& out, std::ostream& err);

// Does the same with standard output and standard error.
int ValidateJob(const job::LoadJobOptions& options, const std::vector<std::string>& expected);

}  // namespace sluice::cli
