// SPDX-License-Identifier: Apache-2.0
// PreparedRun: all decisions about a local run before any process starts: the job, folders, ports
// and links.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/launch/command_lines.h"
#include "cli/launch/console.h"
#include "cli/launch/free_port.h"
#include "cli/resume_check.h"
#include "cli/run.h"
#include "cli/run_token.h"
#include "job/job_spec.h"
#include "net/grpc/transport.h"

namespace sluice::cli {

struct PreparedRun {
  job::JobSpec spec;
  RunStart start;
  LaunchOptions launch;
  // Returns true if the workers are a user's command in place of sluice-worker.
  bool has_command() const { return !launch.command.empty(); }
  std::string page_url;           // Empty if there is no page.
  bool keep_logs = true;          // False if the logs are in a temporary folder of this run.
  std::optional<RunToken> token;  // Empty if the user has given a token.
  // For connections of the launcher to its processes.
  std::shared_ptr<const net::Transport> transport;
  std::optional<double> bits_per_second;  // Empty if links are not paced.
  // Ports of the shards, of the relays, of a command's processes, and of the page, in this order.
  // They are held until the end of the run, so that a process that starts slowly or again finds its
  // port free.
  std::vector<FreePort> ports;
};

// Prints warnings about unwise settings on `console`. Fails with INVALID_ARGUMENT if the job file
// or a flag is invalid.
absl::StatusOr<PreparedRun> PrepareRun(const RunOptions& options, Console* console);

}  // namespace sluice::cli
