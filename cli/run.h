// `sluice run`: a job's shards and workers as processes on this machine, from start to report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/restart_policy.h"

namespace sluice::cli {

struct RunOptions {
  std::string job_path;
  std::vector<std::string> sets;
  bool dense = false;
  std::string link_rate;  // "100mbit"; empty: not paced.
  std::string json_path;  // Empty: no report file.
  uint32_t threads = 0;   // Of each worker; 0: its share of the cores that there are.
  std::string
      http_listen;  // HOST:PORT, "off", or empty: the job's port on loopback, else a free one.
  uint16_t metrics_port = 0;  // As LaunchOptions has it.
  std::string trace_folder;   // As LaunchOptions has it; made if it is not there.
  bool resume = false;        // Continue the unfinished run in the job's checkpoint.dir.
  bool quiet = false;         // No progress, no warnings.
  RestartLimits restart_limits;
  std::string log_folder;  // Empty: a temporary one, removed if all went well.
  std::string temporary_folder;
  std::string program_folder;
  std::vector<std::string> environment;
  ConsoleOptions console;
};

// Call it on the main thread, before others are started. The program's exit code: 0; 1: the run
// failed; 2: the job file or a flag is wrong; 128 + a signal: stopped by it. Whatever comes back,
// no process of the run is left.
//
// In a job with checkpoints a process that is killed or lost the others is started again
// (cli/launch/restart_policy.h), and a stop signal first asks for a checkpoint.
int RunJob(const RunOptions& options);

}  // namespace sluice::cli
