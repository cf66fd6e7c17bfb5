// SPDX-License-Identifier: Apache-2.0
// Command-line code that the programs of a job share: flags, and the exit code for an invalid
// command line.
#pragma once

#include <optional>

#include "job/file/job_file.h"

namespace CLI {
class App;
}

namespace sluice::app {

// Adds --job, --set and --dense, which select the job. `options` must stay alive while the command
// line is parsed; this also applies to the functions below.
void AddJobFlags(CLI::App* app, job::LoadJobOptions* options);

// Parses the command line. Returns an exit code if the program must end now, because the command
// line was invalid or asked for --help.
std::optional<int> ParseFlags(CLI::App* app, int argc, char** argv);

}  // namespace sluice::app
