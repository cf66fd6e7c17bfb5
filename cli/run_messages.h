// SPDX-License-Identifier: Apache-2.0
// Texts that `sluice run` prints for a person. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "cli/prepared_run.h"
#include "cli/run.h"

namespace sluice::cli {

// The failure of a run whose commands all ended without joining the job.
inline constexpr absl::string_view kNoWorkerJoined =
    "all commands ended well, but none of them joined the job: the program must call "
    "sluice.attach or sluice.init (docs/python.md).";

// Returns the lines that introduce a run: its job, its folder, and the command that shows its
// state.
std::string StartText(const RunOptions& options, const PreparedRun& run);

// Returns advice for a user whose process ended in this way.
absl::string_view Advice(int wait_status);

// Returns the command that continues the run, as a person would type it.
std::string ResumeCommand(const RunOptions& options);

}  // namespace sluice::cli
