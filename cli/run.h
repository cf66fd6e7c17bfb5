// SPDX-License-Identifier: Apache-2.0
// `sluice run`: runs a job's shards and workers as processes on this machine, from start to report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/restart_policy.h"

namespace sluice::cli {

struct RunOptions {
  std::string job_path;  // Empty if `command` is the whole job.
  // The program, and its arguments, that runs in place of sluice-worker. It replaces the job file's
  // `command`.
  std::vector<std::string> command;
  uint32_t workers = 0;  // Replaces the job file's `workers`, unless it is 0.
  std::vector<std::string> sets;
  bool dense = false;
  std::string link_rate;    // For example "100mbit". Empty if links are not paced.
  std::string report_path;  // If empty, no report is written.
  // Threads of each worker. With 0, each worker gets its share of the available cores.
  uint32_t threads = 0;
  // HOST:PORT or "off". If empty, the job's port on loopback is used, or a free port if that port
  // is taken.
  std::string http_listen;
  uint16_t http_port_base = 0;  // As in LaunchOptions.
  std::string trace_folder;     // As in LaunchOptions. The folder is created if it is missing.
  bool resume = false;  // If true, continues the unfinished run in the job's checkpoint.dir.
  bool quiet = false;   // If true, no progress and no warnings are printed.
  RestartLimits restart_limits;
  std::string token_file;  // If empty, the run makes a token of its own in its log folder.
  std::string log_folder;  // If empty, a temporary folder is used and removed after a success.
  std::string temporary_folder;
  std::string program_folder;
  std::vector<std::string> environment;
  ConsoleOptions console;
};

// Call this on the main thread before other threads are started. Returns the exit code of the
// program: 0 on success, 1 if the run failed, 2 if the job file or a flag is invalid, or 128 + the
// signal that stopped the run. If a user's command failed first, its exit code, as a shell reports
// it. In every case, all processes of the run have ended.
//
// In a job with checkpoints, a process is restarted if it was killed or lost its peers
// (cli/launch/restart_policy.h), and a stop signal first requests a checkpoint.
int RunJob(const RunOptions& options);

}  // namespace sluice::cli
