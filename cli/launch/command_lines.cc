// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/command_lines.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {
namespace {

// Loopback traffic must not go through proxies. gRPC reads all of these variables, and other
// programs read the second group.
constexpr std::array<absl::string_view, 2> kGrpcProxies = {"grpc_proxy", "no_grpc_proxy"};
constexpr std::array<absl::string_view, 3> kProxies = {"http_proxy", "https_proxy", "no_proxy"};
// The rank variables of a cluster that runs the launcher do not apply to the launcher's own
// workers.
constexpr std::array<absl::string_view, 21> kRanks = {"rank",
                                                      "local_rank",
                                                      "group_rank",
                                                      "role_rank",
                                                      "world_size",
                                                      "local_world_size",
                                                      "group_world_size",
                                                      "role_world_size",
                                                      "master_addr",
                                                      "master_port",
                                                      "slurm_procid",
                                                      "slurm_localid",
                                                      "slurm_ntasks",
                                                      "job_completion_index",
                                                      "torchelastic_restart_count",
                                                      "torchelastic_use_agent_store",
                                                      "sluice_coordinator",
                                                      "sluice_job",
                                                      "sluice_job_source",
                                                      "sluice_report",
                                                      "sluice_token_file"};

// Returns the entries of `environment` whose names are not in `names`, which are in lower case.
std::vector<std::string> Without(absl::Span<const absl::string_view> names,
                                 absl::Span<const std::string> environment) {
  std::vector<std::string> others;
  for (const std::string& entry : environment) {
    const std::string name = absl::AsciiStrToLower(entry.substr(0, entry.find('=')));
    if (std::find(names.begin(), names.end(), name) == names.end()) others.push_back(entry);
  }
  return others;
}

// Returns the setting that makes gRPC dial through the paced link of a process, or an empty string
// if its link is not paced.
std::string PacedLink(const LaunchOptions& options, size_t process) {
  if (process >= options.proxy_ports.size()) return "";
  return absl::StrCat("grpc_proxy=http://127.0.0.1:", options.proxy_ports[process]);
}

std::string Loopback(uint32_t port) { return absl::StrCat("127.0.0.1:", port); }

// Returns the options of a process without its command and environment. `number` counts processes
// of this kind.
ChildOptions BareChild(const LaunchOptions& options, absl::string_view kind, size_t number) {
  ChildOptions child;
  child.name = absl::StrCat(kind, " ", number);
  child.log_path = absl::StrCat(options.log_folder, "/", kind, "-", number, ".log");
  child.append_log = options.append_logs;
  return child;
}

// Returns the options of a process with the flags that select the job. `process` counts all
// processes.
ChildOptions Child(const LaunchOptions& options, absl::string_view kind, size_t number,
                   absl::string_view program, size_t process) {
  ChildOptions child = BareChild(options, kind, number);
  child.command = {absl::StrCat(options.program_folder, "/", program), "--job", options.job_path};
  for (const std::string& set : options.sets) {
    child.command.insert(child.command.end(), {"--set", set});
  }
  if (options.dense) child.command.push_back("--dense");
  if (!options.token_file.empty()) {
    child.command.insert(child.command.end(), {"--token-file", options.token_file});
  }
  child.environment = PassedOn(options.environment);
  std::string link = PacedLink(options, process);
  if (!link.empty()) child.environment.push_back(std::move(link));
  return child;
}

void AddTrace(const LaunchOptions& options, absl::string_view kind, size_t number,
              ChildOptions* child) {
  if (options.trace_folder.empty()) return;
  child->command.insert(
      child->command.end(),
      {"--trace-file", absl::StrCat(options.trace_folder, "/", kind, "-", number, ".json")});
}

ChildOptions Worker(const LaunchOptions& options, uint32_t rank, const std::string& coordinator) {
  const size_t servers = options.shard_ports.size() + options.relay_ports.size();
  ChildOptions child = Child(options, "worker", rank, "sluice-worker", servers + rank);
  child.command.insert(child.command.end(),
                       {"--coordinator", coordinator, "--rank", absl::StrCat(rank), "--report",
                        ReportPath(options, rank)});
  if (options.threads > 0) {
    child.command.insert(child.command.end(), {"--threads", absl::StrCat(options.threads)});
  }
  if (options.http_port_base > 0) {
    const auto port =
        options.http_port_base + static_cast<uint32_t>(options.shard_ports.size()) + rank;
    child.command.insert(child.command.end(), {"--http-listen", Loopback(port)});
  }
  AddTrace(options, "worker", rank, &child);
  return child;
}

// Returns the user's command as a worker. The command gets the variables that torchrun sets, and
// those that Sluice's Python package reads. It keeps the proxies of the launcher's environment for
// other traffic, but its gRPC connections on loopback do not go through them.
ChildOptions Command(const LaunchOptions& options, uint32_t rank, const std::string& coordinator) {
  const size_t servers = options.shard_ports.size() + options.relay_ports.size();
  ChildOptions child = BareChild(options, "worker", rank);
  child.command = options.command;
  child.guard_group = true;
  std::vector<std::string>& environment = child.environment;
  environment = Without(kGrpcProxies, Without(kRanks, options.environment));
  const std::string link = PacedLink(options, servers + rank);
  // If no_grpc_proxy were not set, gRPC would use no_proxy.
  environment.push_back(link.empty() ? "no_grpc_proxy=127.0.0.1" : "no_grpc_proxy=none");
  if (!link.empty()) environment.push_back(link);
  const std::string workers = absl::StrCat(options.workers);
  const std::string own_rank = absl::StrCat(rank);
  for (const auto& [name, value] : {std::pair<absl::string_view, std::string>("RANK", own_rank),
                                    {"LOCAL_RANK", own_rank},
                                    {"WORLD_SIZE", workers},
                                    {"LOCAL_WORLD_SIZE", workers},
                                    {"MASTER_ADDR", "127.0.0.1"},
                                    {"MASTER_PORT", absl::StrCat(options.master_port)},
                                    {"SLUICE_COORDINATOR", coordinator},
                                    {"SLUICE_JOB", options.job_path},
                                    {"SLUICE_JOB_SOURCE", options.job_source},
                                    {"SLUICE_REPORT", ReportPath(options, rank)}}) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  if (!options.token_file.empty()) {
    environment.push_back(absl::StrCat("SLUICE_TOKEN_FILE=", options.token_file));
  }
  if (options.threads > 0) {
    environment.push_back(absl::StrCat("OMP_NUM_THREADS=", options.threads));
  }
  // Without this variable, Python would write to the log in large blocks.
  if (!HasVariable(environment, "PYTHONUNBUFFERED")) environment.push_back("PYTHONUNBUFFERED=1");
  return child;
}

}  // namespace

bool HasVariable(absl::Span<const std::string> environment, absl::string_view name) {
  return std::any_of(environment.begin(), environment.end(), [&](const std::string& entry) {
    return absl::string_view(entry).substr(0, entry.find('=')) == name;
  });
}

std::vector<std::string> PassedOn(absl::Span<const std::string> environment) {
  return Without(kRanks, Without(kProxies, Without(kGrpcProxies, environment)));
}

std::string ReportPath(const LaunchOptions& options, uint32_t rank) {
  return absl::StrCat(options.log_folder, "/report-", rank, ".json");
}

std::string CoordinatorAddress(const LaunchOptions& options) {
  return Loopback(options.shard_ports[0]);
}

CommandLines MakeCommandLines(const LaunchOptions& options) {
  CommandLines plan;
  plan.coordinator = CoordinatorAddress(options);
  const size_t shards = options.shard_ports.size();
  for (size_t i = 0; i < shards; ++i) {
    ChildOptions child = Child(options, "shard", i, "sluice-server", i);
    const std::string address = Loopback(options.shard_ports[i]);
    const std::string metrics = options.http_port_base == 0
                                    ? "off"
                                    : Loopback(options.http_port_base + static_cast<uint32_t>(i));
    child.command.insert(child.command.end(),
                         {"--shard", absl::StrCat(i), "--listen", address, "--advertise", address,
                          "--http-listen", i == 0 ? options.http_listen : metrics});
    if (i > 0) child.command.insert(child.command.end(), {"--coordinator", plan.coordinator});
    AddTrace(options, "shard", i, &child);
    plan.shards.push_back(std::move(child));
  }
  const size_t relays = options.relay_ports.size();
  for (size_t i = 0; i < relays; ++i) {
    ChildOptions child = Child(options, "relay", i, "sluice-relay", shards + i);
    child.command.insert(child.command.end(),
                         {"--relay", absl::StrCat(i), "--coordinator", plan.coordinator, "--listen",
                          Loopback(options.relay_ports[i])});
    plan.relays.push_back(std::move(child));
  }
  for (uint32_t rank = 0; rank < options.workers; ++rank) {
    const std::string coordinator =
        relays == 0 ? plan.coordinator : Loopback(options.relay_ports[options.relay_of[rank]]);
    plan.workers.push_back(options.command.empty() ? Worker(options, rank, coordinator)
                                                   : Command(options, rank, coordinator));
  }
  return plan;
}

}  // namespace sluice::cli
