// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/exchange_plan.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "net/grpc/host_port.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kFirstPort = 7070;

// Runs the command through `env`, which finds the first word as a shell would.
std::vector<std::string> Wrapped(const std::string& wrap, uint32_t number, std::string program) {
  std::vector<std::string> command;
  for (const absl::string_view word : absl::StrSplit(wrap, ' ', absl::SkipWhitespace())) {
    if (command.empty()) command.emplace_back("/usr/bin/env");
    command.push_back(absl::StrReplaceAll(word, {{"{}", absl::StrCat(number)}}));
  }
  command.push_back(std::move(program));
  return command;
}

void Append(const std::vector<std::string>& words, std::vector<std::string>* command) {
  command->insert(command->end(), words.begin(), words.end());
}

cli::ChildOptions ServerOf(const ExchangePlanOptions& options, uint32_t shard) {
  cli::ChildOptions child;
  child.name = absl::StrCat("shard ", shard);
  child.command =
      Wrapped(options.wrap_server, shard, absl::StrCat(options.program_folder, "/sluice-server"));
  const std::string& address = options.server_addresses[shard];
  child.command.insert(child.command.end(),
                       {"--job", options.job_path, "--shard", absl::StrCat(shard), "--listen",
                        address, "--advertise", address, "--http-listen", "off"});
  if (shard > 0) {
    child.command.insert(child.command.end(), {"--coordinator", options.coordinator});
  }
  Append(options.security.Arguments(), &child.command);
  // Anonymous access is acceptable here: the gradients are synthetic, the user asked for these
  // addresses, and the servers run only during the measurement.
  if (!net::IsLoopback(address)) child.command.emplace_back("--allow-anonymous");
  child.environment = cli::PassedOn(options.environment);
  child.log_path = absl::StrCat(options.log_folder, "/shard-", shard, ".log");
  return child;
}

cli::ChildOptions WorkerOf(const ExchangePlanOptions& options, uint32_t rank) {
  cli::ChildOptions child;
  child.name = absl::StrCat("worker ", rank);
  child.command = Wrapped(options.wrap_worker, rank, options.program);
  const ExchangeGradients& gradients = options.gradients;
  const bool file = !gradients.table_path.empty();
  child.command.insert(
      child.command.end(),
      {"bench", "exchange-worker", "--job", options.job_path, "--coordinator", options.coordinator,
       "--rank", absl::StrCat(rank), file ? "--table" : "--model",
       file ? gradients.table_path : gradients.model, "--elements",
       absl::StrCat(gradients.elements), "--seed", absl::StrCat(gradients.seed)});
  Append(options.security.Arguments(), &child.command);
  child.environment = cli::PassedOn(options.environment);
  child.log_path = absl::StrCat(options.log_folder, "/worker-", rank, ".log");
  child.input = true;
  return child;
}

}  // namespace

cli::CommandLines MakeExchangePlan(const ExchangePlanOptions& options) {
  cli::CommandLines plan;
  plan.coordinator = options.coordinator;
  const auto shards = static_cast<uint32_t>(options.server_addresses.size());
  for (uint32_t shard = 0; shard < shards; ++shard) plan.shards.push_back(ServerOf(options, shard));
  for (uint32_t rank = 0; rank < options.workers; ++rank) {
    plan.workers.push_back(WorkerOf(options, rank));
  }
  return plan;
}

absl::StatusOr<std::vector<std::string>> AddressesOf(const std::vector<std::string>& hosts,
                                                     uint32_t shards) {
  if (hosts.size() != shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("--server-hosts names ", hosts.size(), " hosts for ", shards,
                     " shards: name one host per shard, separated by commas"));
  }
  std::vector<std::string> addresses;
  for (uint32_t shard = 0; shard < shards; ++shard) {
    const std::string& host = hosts[shard];
    if (host.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--server-hosts: the host of shard ", shard, " is empty"));
    }
    const bool has_port = host.find(':') != std::string::npos;
    addresses.push_back(has_port ? host : absl::StrCat(host, ":", kFirstPort + shard));
  }
  return addresses;
}

absl::Status CheckRemoteJob(const v1::GetStatusReply& remote, const ExchangeJob& job) {
  std::string problem;
  if (remote.job_name() != kExchangeJobName) {
    problem = absl::StrCat("runs the job '", absl::CHexEscape(remote.job_name()), "', not '",
                           kExchangeJobName, "'");
  } else if (remote.world_size() != job.workers) {
    problem = absl::StrCat("runs it for ", remote.world_size(), " workers, not ", job.workers);
  } else if (static_cast<uint32_t>(remote.shards_size()) != job.shards) {
    problem = absl::StrCat("runs it on ", remote.shards_size(), " shards, not ", job.shards);
  } else if (remote.phase() != v1::JOB_PHASE_WAITING) {
    problem =
        "runs a job that other workers have joined, or that has ended: a job can be measured only "
        "once";
  } else {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "--connect: the coordinator ", problem,
      "; start its servers with the job file that the same command prints with --print-job"));
}

}  // namespace sluice::bench
