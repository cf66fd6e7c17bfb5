// `sluice validate`: says what a job file means, or what is wrong with it.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "job/file/job_file.h"

namespace sluice::cli {

// Writes the resolved job and a summary, or the problems. Returns the exit code: 0 if the job can
// run, warnings or not, else 2. `expected`, "key.key=value" as in LoadJobOptions::set: what the job
// must already say; for launchers that rely on it.
int ValidateCommand(const job::LoadJobOptions& options, const std::vector<std::string>& expected,
                    std::ostream& out, std::ostream& err);

// The same on standard output and standard error.
int ValidateJob(const job::LoadJobOptions& options, const std::vector<std::string>& expected);

}  // namespace sluice::cli
