// SPDX-License-Identifier: Apache-2.0
// `sluice why`: says in one paragraph what a job waits for and what to do about it.
#pragma once

#include <string>

#include "cli/status.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::cli {

// Returns the paragraph: the state of the job, its problems, the causes of slow steps, and what to
// do about each. Pure.
std::string ExplainJob(const v1::GetStatusReply& received);

// Prints the paragraph for the job of `options.coordinator`; ignores `json` and `watch`. Returns
// the exit code of the program: 0; 1 if no coordinator answers; 2 if a file of `security` is
// invalid.
int ShowWhy(const StatusOptions& options);

}  // namespace sluice::cli
