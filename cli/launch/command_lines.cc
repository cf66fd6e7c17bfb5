#include "cli/launch/command_lines.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {
namespace {

// Loopback traffic must not go through proxies. The rank variables of a cluster that runs the
// launcher do not apply to the launcher's own workers.
constexpr std::array<absl::string_view, 10> kNotPassedOn = {
    "http_proxy", "https_proxy",  "grpc_proxy",   "no_proxy",   "no_grpc_proxy",
    "rank",       "slurm_procid", "slurm_ntasks", "world_size", "job_completion_index"};

std::vector<std::string> Environment(const LaunchOptions& options, size_t process) {
  std::vector<std::string> environment = PassedOn(options.environment);
  if (process < options.proxy_ports.size()) {
    environment.push_back(
        absl::StrCat("grpc_proxy=http://127.0.0.1:", options.proxy_ports[process]));
  }
  return environment;
}

std::string Loopback(uint32_t port) { return absl::StrCat("127.0.0.1:", port); }

// Returns the options of a process with the flags that select the job. `number` counts processes of
// this kind; `process` counts all processes.
ChildOptions Child(const LaunchOptions& options, absl::string_view kind, size_t number,
                   absl::string_view program, size_t process) {
  const std::string file = absl::StrCat(kind, "-", number);
  ChildOptions child;
  child.name = absl::StrCat(kind, " ", number);
  child.command = {absl::StrCat(options.program_folder, "/", program), "--job", options.job_path};
  for (const std::string& set : options.sets) {
    child.command.insert(child.command.end(), {"--set", set});
  }
  if (options.dense) child.command.push_back("--dense");
  child.environment = Environment(options, process);
  child.log_path = absl::StrCat(options.log_folder, "/", file, ".log");
  child.append_log = options.append_logs;
  return child;
}

void AddTrace(const LaunchOptions& options, absl::string_view kind, size_t number,
              ChildOptions* child) {
  if (options.trace_folder.empty()) return;
  child->command.insert(
      child->command.end(),
      {"--trace-file", absl::StrCat(options.trace_folder, "/", kind, "-", number, ".json")});
}

}  // namespace

std::vector<std::string> PassedOn(absl::Span<const std::string> environment) {
  std::vector<std::string> passed_on;
  for (const std::string& entry : environment) {
    const std::string name = absl::AsciiStrToLower(entry.substr(0, entry.find('=')));
    if (std::find(kNotPassedOn.begin(), kNotPassedOn.end(), name) == kNotPassedOn.end()) {
      passed_on.push_back(entry);
    }
  }
  return passed_on;
}

std::string ReportPath(const LaunchOptions& options, uint32_t rank) {
  return absl::StrCat(options.log_folder, "/report-", rank, ".json");
}

CommandLines MakeCommandLines(const LaunchOptions& options) {
  CommandLines plan;
  plan.coordinator = Loopback(options.shard_ports[0]);
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
    ChildOptions child = Child(options, "worker", rank, "sluice-worker", shards + relays + rank);
    child.command.insert(
        child.command.end(),
        {"--coordinator",
         relays == 0 ? plan.coordinator : Loopback(options.relay_ports[options.relay_of[rank]]),
         "--rank", absl::StrCat(rank), "--report", ReportPath(options, rank)});
    if (options.threads > 0) {
      child.command.insert(child.command.end(), {"--threads", absl::StrCat(options.threads)});
    }
    if (options.http_port_base > 0) {
      const auto port = options.http_port_base + static_cast<uint32_t>(shards) + rank;
      child.command.insert(child.command.end(), {"--http-listen", Loopback(port)});
    }
    AddTrace(options, "worker", rank, &child);
    plan.workers.push_back(std::move(child));
  }
  return plan;
}

}  // namespace sluice::cli
