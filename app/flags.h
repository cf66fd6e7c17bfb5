// What the programs of a job have in common at their edge: flags, and the end of a wrong command
// line.
#pragma once

#include <optional>

#include "job/file/job_file.h"

namespace CLI {
class App;
}

namespace sluice::app {

// --job, --set and --dense: which job. `options` must outlive the parsing, here and below.
void AddJobFlags(CLI::App* app, job::LoadJobOptions* options);

// The exit code if nothing is left to do: the command line was wrong, or asked for --help.
std::optional<int> ParseFlags(CLI::App* app, int argc, char** argv);

}  // namespace sluice::app
