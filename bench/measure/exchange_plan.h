// ExchangePlan: the command lines of all processes of `sluice bench exchange`. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/measure/exchange_job.h"
#include "cli/launch/launch_plan.h"
#include "net/grpc/transport_options.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::bench {

struct ExchangePlanOptions {
  std::string program;         // Path of this one: workers are it too.
  std::string program_folder;  // Of sluice-server.
  std::string job_path;
  ExchangeGradients gradients;
  net::TransportOptions security;  // Of all of them.
  uint32_t workers = 0;
  std::vector<std::string> server_addresses;  // HOST:PORT of each shard that is to be started.
  std::string coordinator;                    // HOST:PORT of shard 0.
  // Words before a process's command, e.g. "ip netns exec w{}": {} is its rank or shard.
  std::string wrap_worker;
  std::string wrap_server;
  std::vector<std::string> environment;  // Of the launcher.
  std::string log_folder;
};

cli::LaunchPlan MakeExchangePlan(const ExchangePlanOptions& options);

// Where shard `shard` listens by --server-hosts: as it stands there, port and all, or at 7070 +
// shard. INVALID_ARGUMENT: not as many hosts as shards, or an empty one.
absl::StatusOr<std::vector<std::string>> AddressesOf(const std::vector<std::string>& hosts,
                                                     uint32_t shards);

// Whether workers may join what a coordinator elsewhere says of its job; FAILED_PRECONDITION says
// what does not fit and what to do. That the rest of the job file is the same, joining tells.
absl::Status CheckRemoteJob(const v1::GetStatusReply& remote, const ExchangeJob& job);

}  // namespace sluice::bench
