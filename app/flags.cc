// SPDX-License-Identifier: Apache-2.0
#include "app/flags.h"

#include <CLI/CLI.hpp>

#include "app/exit_codes.h"

namespace sluice::app {

void AddJobFlags(CLI::App* app, job::LoadJobOptions* options) {
  app->add_option("--job", options->path, "Job file (docs/job-file.md)")
      ->required()
      ->type_name("JOB.yaml");
  app->add_option("--set", options->set,
                  "Override a key of the job file, as in --set optimizer.lr=0.1; may be repeated. "
                  "All processes of a job need the same values")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app->add_flag("--dense", options->dense, "Uncompressed, with the job file's baseline: applied");
}

std::optional<int> ParseFlags(CLI::App* app, int argc, char** argv) {
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app->exit(error) == 0 ? kExitFinished : kExitUsage;
  }
  return std::nullopt;
}

}  // namespace sluice::app
