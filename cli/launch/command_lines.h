// SPDX-License-Identifier: Apache-2.0
// CommandLines: the command lines and environments of all processes of a job that runs on this
// machine. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cli/launch/child_process.h"

namespace sluice::cli {

struct LaunchOptions {
  std::string program_folder;  // Folder of sluice-server and sluice-worker.
  // The program that runs in place of sluice-worker, and its arguments. Empty for sluice-worker.
  std::vector<std::string> command{};
  uint16_t master_port = 0;  // MASTER_PORT of the command.
  std::string job_path;
  std::string job_source{};       // The file that job_path copies, for messages of a command.
  std::vector<std::string> sets;  // key=value items for all processes.
  bool dense = false;
  // The file with the token of all processes. If empty, they have none.
  std::string token_file{};
  uint32_t threads = 0;                  // Threads of each worker. With 0, the flag is omitted.
  std::vector<std::string> environment;  // Environment of the launcher.
  bool append_logs = false;
  // Folder for worker-0.log, shard-0.log, ..., and the workers' reports.
  std::string log_folder;
  std::vector<uint16_t> shard_ports;  // Ports on 127.0.0.1, one for each shard.
  std::string http_listen;            // HTTP address of shard 0: HOST:PORT, or "off".
  uint32_t workers = 0;
  // All other processes serve metrics on 127.0.0.1: shard I on port http_port_base + I, and worker
  // R on port http_port_base + shards + R. 0 disables these ports.
  uint16_t http_port_base = 0;
  // Folder for shard-0.json, worker-0.json, ... If empty, no traces are written.
  std::string trace_folder{};
  // The ports of the job's relays on 127.0.0.1, and the relay of each worker. Empty if the job has
  // no relays.
  std::vector<uint16_t> relay_ports{};
  std::vector<uint32_t> relay_of{};
  // Ports of the link pacer. Shards come first, followed by relays, or by workers if there are no
  // relays. (Workers behind a relay are near it, so their links are not paced.) Empty disables
  // pacing.
  std::vector<uint16_t> proxy_ports;
};

struct CommandLines {
  std::vector<ChildOptions> shards;   // "shard 0", ...
  std::vector<ChildOptions> relays;   // "relay 0", ...
  std::vector<ChildOptions> workers;  // "worker 0", ...
  std::string coordinator;            // HOST:PORT
};

// Returns true if `environment` has an entry NAME=value with this name.
bool HasVariable(absl::Span<const std::string> environment, absl::string_view name);

// Returns the part of a launcher's environment that its processes receive: everything except the
// variables for proxies and ranks.
std::vector<std::string> PassedOn(absl::Span<const std::string> environment);

// Returns HOST:PORT of shard 0.
std::string CoordinatorAddress(const LaunchOptions& options);

CommandLines MakeCommandLines(const LaunchOptions& options);

// Returns the path of the report of worker `rank`.
std::string ReportPath(const LaunchOptions& options, uint32_t rank);

}  // namespace sluice::cli
