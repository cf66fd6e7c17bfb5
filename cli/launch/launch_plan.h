// LaunchPlan: the command lines and environments of all processes of a job on this machine. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cli/launch/child_process.h"

namespace sluice::cli {

struct LaunchOptions {
  std::string program_folder;  // Of sluice-server and sluice-worker.
  std::string job_path;
  std::vector<std::string> sets;  // key=value, passed on.
  bool dense = false;
  uint32_t threads = 0;                  // Of each worker; 0: not said to them.
  std::vector<std::string> environment;  // Of the launcher.
  bool append_logs = false;
  std::string log_folder;  // Gets worker-0.log, shard-0.log, ...; and the workers' reports.
  std::vector<uint16_t> shard_ports;  // On 127.0.0.1; one shard each.
  std::string http_listen;            // Of shard 0: HOST:PORT, or "off".
  uint32_t workers = 0;
  // All others serve metrics on 127.0.0.1: shard I at metrics_port + I, worker R at metrics_port +
  // shards + R. 0: they serve none.
  uint16_t metrics_port = 0;
  std::string trace_folder{};  // Gets shard-0.json, worker-0.json, ...; empty: no traces.
  // Of the job's relays, on 127.0.0.1, and of the relay of each worker; empty: it has none.
  std::vector<uint16_t> relay_ports{};
  std::vector<uint32_t> relay_of{};
  // Of the link pacer, shards first, then relays, or workers if there are none (what is behind a
  // relay is near it); empty: no pacing.
  std::vector<uint16_t> proxy_ports;
};

struct LaunchPlan {
  std::vector<ChildOptions> shards;   // "shard 0", ...
  std::vector<ChildOptions> relays;   // "relay 0", ...
  std::vector<ChildOptions> workers;  // "worker 0", ...
  std::string coordinator;            // HOST:PORT
};

// What of a launcher's environment its processes get: nothing about proxies, nor about ranks.
std::vector<std::string> PassedOn(absl::Span<const std::string> environment);

LaunchPlan MakeLaunchPlan(const LaunchOptions& options);

// Where worker `rank` leaves its report.
std::string ReportPath(const LaunchOptions& options, uint32_t rank);

}  // namespace sluice::cli
