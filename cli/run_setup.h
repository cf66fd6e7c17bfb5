// RunSetup: what a local run is decided on before any process starts: job, folders, ports, links.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/launch/console.h"
#include "cli/launch/free_port.h"
#include "cli/launch/launch_plan.h"
#include "cli/run.h"
#include "cli/run_start.h"
#include "job/job_spec.h"

namespace sluice::cli {

struct RunSetup {
  job::JobSpec spec;
  RunStart start;
  LaunchOptions launch;
  std::string page_url;                   // Empty: no page.
  bool keep_logs = true;                  // False: in a temporary folder of ours.
  std::optional<double> bits_per_second;  // None: links are not paced.
  // Of the shards, the relays, then of the page. Hold them until the processes start; with
  // checkpoints until the end, so that a shard that is started again finds its own.
  std::vector<FreePort> ports;
};

// Says on `console` what is unwise. INVALID_ARGUMENT: the job file or a flag is wrong.
absl::StatusOr<RunSetup> PrepareRun(const RunOptions& options, Console* console);

}  // namespace sluice::cli
