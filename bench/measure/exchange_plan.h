// SPDX-License-Identifier: Apache-2.0
// ExchangePlan: the command lines of all processes of `sluice bench exchange`. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/measure/exchange_job.h"
#include "cli/launch/command_lines.h"
#include "net/grpc/transport_options.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::bench {

struct ExchangePlanOptions {
  // Path of this program, which also runs as each worker.
  std::string program;
  // Folder that contains sluice-server.
  std::string program_folder;
  std::string job_path;
  ExchangeGradients gradients;
  // Credentials that every process of the measurement uses.
  net::TransportOptions security;
  uint32_t workers = 0;
  std::vector<std::string> server_addresses;  // HOST:PORT of each shard to start.
  std::string coordinator;                    // HOST:PORT of shard 0.
  // Words before a process's command, e.g. "ip netns exec w{}". {} stands for the rank or shard.
  std::string wrap_worker;
  std::string wrap_server;
  std::vector<std::string> environment;  // Environment of the launcher.
  std::string log_folder;
};

cli::CommandLines MakeExchangePlan(const ExchangePlanOptions& options);

// Returns the shards' addresses for --server-hosts. An entry with a port is unchanged, and an entry
// without a port gets port 7070 + shard. Fails with INVALID_ARGUMENT if the numbers of hosts and
// shards differ, or a host is empty.
absl::StatusOr<std::vector<std::string>> AddressesOf(const std::vector<std::string>& hosts,
                                                     uint32_t shards);

// Checks that workers may join the job that a remote coordinator describes. Fails with
// FAILED_PRECONDITION, and names the difference and the remedy. This check covers only a part of
// the job file; the join compares the rest.
absl::Status CheckRemoteJob(const v1::GetStatusReply& remote, const ExchangeJob& job);

}  // namespace sluice::bench
