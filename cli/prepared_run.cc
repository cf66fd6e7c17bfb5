// SPDX-License-Identifier: Apache-2.0
#include "cli/prepared_run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/cores.h"
#include "base/log.h"
#include "cli/launch/quantity.h"
#include "job/file/job_file.h"
#include "job/momentum.h"
#include "job/relays.h"
#include "net/grpc/transport_options.h"

namespace sluice::cli {
namespace {

// The job of `sluice run -- COMMAND`. Its codecs are those that a Python script has without a job.
constexpr absl::string_view kJobOfCommand =
    "name: run\ncompression: {uplink: int8, downlink: int8}\n";

absl::StatusOr<job::LaunchJob> LoadRunJob(const RunOptions& options) {
  job::LoadJobOptions load{options.job_path, options.sets, options.dense};
  if (options.workers > 0) load.set.push_back(absl::StrCat("workers=", options.workers));
  if (!options.command.empty()) {
    // YAML reads JSON's lists and strings.
    const std::string list = nlohmann::json(options.command)
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    load.set.push_back(absl::StrCat("command=", list));
  }
  absl::StatusOr<job::LaunchJob> job =
      options.job_path.empty() ? job::LoadLaunchJobFromText(kJobOfCommand, "sluice run", load)
                               : job::LoadLaunchJob(load);
  if (!job.ok()) return absl::InvalidArgumentError(job.status().message());
  return job;
}

// Returns the path of a program that a user has named as in a shell.
absl::StatusOr<std::string> FindProgram(const std::string& name,
                                        const std::vector<std::string>& environment) {
  std::vector<std::string> places = {name};
  if (!absl::StrContains(name, '/')) {
    places.clear();
    for (const std::string& entry : environment) {
      if (!absl::StartsWith(entry, "PATH=")) continue;
      for (const absl::string_view folder : absl::StrSplit(entry.substr(5), ':')) {
        places.push_back(absl::StrCat(folder.empty() ? "." : folder, "/", name));
      }
    }
  }
  for (const std::string& place : places) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(place, ignored) && ::access(place.c_str(), X_OK) == 0) {
      return place;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("command: there is no program ", name,
                   absl::StrContains(name, '/') ? "" : " in the folders of $PATH",
                   " that this user may execute"));
}

absl::Status CheckPrograms(const std::string& folder, const PreparedRun& setup) {
  for (const absl::string_view program : {"sluice-server", "sluice-relay", "sluice-worker"}) {
    if (program == "sluice-relay" && !setup.spec.relays.enabled()) continue;
    if (program == "sluice-worker" && setup.has_command()) continue;
    const std::string path = absl::StrCat(folder, "/", program);
    if (::access(path.c_str(), X_OK) != 0) {
      return absl::NotFoundError(absl::StrCat(
          "there is no ", path, ": it must be in the same folder as this program. ",
          program == "sluice-worker"
              ? "Install the package sluice-worker, or build it with LibTorch (-DSLUICE_TORCH=ON)"
              : "Build it (scripts/build.sh)"));
    }
  }
  return absl::OkStatus();
}

absl::Status MakeLogFolder(const RunOptions& options, PreparedRun* setup) {
  std::string& folder = setup->launch.log_folder;
  if (options.log_folder.empty()) {
    folder = options.temporary_folder + "/sluice-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot create a folder for logs: ", folder));
    }
    setup->keep_logs = false;
    return absl::OkStatus();
  }
  folder = options.log_folder;
  std::error_code error;
  const bool created = std::filesystem::create_directories(folder, error);
  // Logs may quote a script's data.
  if (created) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-dir: cannot create ", folder, ": ", error.message()));
  }
  return absl::OkStatus();
}

// All processes of the run, and a user's command, use the token in this file.
absl::Status UseToken(const std::string& path, PreparedRun* setup) {
  net::TransportOptions files;
  files.token_file = path;
  absl::StatusOr<std::shared_ptr<const net::Transport>> transport =
      net::Transport::Open(files, Logger("run"));
  if (!transport.ok()) return transport.status();
  setup->transport = *std::move(transport);
  // A command may change its working directory.
  std::error_code error;
  setup->launch.token_file = std::filesystem::absolute(path, error).string();
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--token-file: no absolute path for ", path, ": ", error.message()));
}

absl::Status PrepareToken(const RunOptions& options, PreparedRun* setup) {
  if (!options.token_file.empty()) return absl::OkStatus();
  absl::StatusOr<RunToken> token = RunToken::Create(setup->launch.log_folder);
  if (!token.ok()) return token.status();
  setup->token.emplace(*std::move(token));
  return UseToken(setup->token->path(), setup);
}

absl::Status PreparePage(const RunOptions& options, Console* console, PreparedRun* setup) {
  std::string& listen = setup->launch.http_listen;
  listen = options.http_listen;
  if (listen == "off") return absl::OkStatus();
  if (listen.empty()) {
    const uint16_t usual = setup->spec.server.http_port;
    absl::StatusOr<FreePort> wanted = FreePort::Reserve(usual);
    absl::StatusOr<FreePort> port = wanted.ok() ? std::move(wanted) : FreePort::Reserve();
    if (!port.ok()) return port.status();
    if (port->port() != usual && !options.quiet) {
      console->Say(absl::StrCat("Port ", usual, " is taken; the page of this run is on port ",
                                port->port(), "."));
    }
    listen = absl::StrCat("127.0.0.1:", port->port());
    setup->ports.push_back(*std::move(port));
  }
  setup->page_url = absl::StrCat("http://", listen, "/");
  return absl::OkStatus();
}

absl::Status PreparePorts(const RunOptions& options, Console* console, PreparedRun* setup) {
  const size_t shards = setup->spec.shards;
  for (size_t i = 0; i < shards + setup->spec.relays.workers.size(); ++i) {
    absl::StatusOr<FreePort> port = FreePort::Reserve();
    if (!port.ok()) return port.status();
    (i < shards ? setup->launch.shard_ports : setup->launch.relay_ports).push_back(port->port());
    setup->ports.push_back(*std::move(port));
  }
  if (setup->has_command()) {
    absl::StatusOr<FreePort> port = FreePort::Reserve();
    if (!port.ok()) return port.status();
    setup->launch.master_port = port->port();
    setup->ports.push_back(*std::move(port));
  }
  return PreparePage(options, console, setup);
}

// Prepares a job whose workers are a user's command. All processes read the job from a file in the
// log folder, because a command receives no flags.
absl::Status PrepareCommand(const RunOptions& options, const std::string& job_text,
                            PreparedRun* setup) {
  LaunchOptions& launch = setup->launch;
  // The command may change its working directory.
  std::error_code error;
  launch.log_folder = std::filesystem::absolute(launch.log_folder, error).string();
  launch.job_path = absl::StrCat(launch.log_folder, "/job.yaml");
  if (!options.job_path.empty()) {
    launch.job_source = std::filesystem::absolute(options.job_path, error).string();
  }
  launch.sets.clear();
  launch.dense = false;
  if (options.threads == 0 && HasVariable(options.environment, "OMP_NUM_THREADS")) {
    launch.threads = 0;
  }
  std::ofstream file(launch.job_path, std::ios::trunc);
  file << job_text;
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", launch.job_path));
}

// Checks in advance everything that could otherwise fail only after training.
absl::Status CheckFlags(const RunOptions& options, PreparedRun* setup) {
  if (!options.link_rate.empty()) {
    absl::StatusOr<double> rate = ParseBitRate(options.link_rate);
    if (!rate.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--link-rate: ", rate.status().message()));
    }
    setup->bits_per_second = *rate;
  }
  const uint32_t last = options.http_port_base + setup->spec.shards + setup->spec.workers - 1;
  if (options.http_port_base > 0 && last > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--http-port-base: the last process would serve its metrics on port ", last,
                     "; the highest port is 65535"));
  }
  if (!options.trace_folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.trace_folder, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat("--trace-dir: cannot create the folder ",
                                                     options.trace_folder, ": ", error.message()));
    }
  }
  if (absl::Status status = CheckPrograms(options.program_folder, *setup); !status.ok())
    return status;
  if (setup->has_command()) {
    std::string& name = setup->launch.command[0];
    absl::StatusOr<std::string> program = FindProgram(name, options.environment);
    if (!program.ok()) return program.status();
    name = *std::move(program);
  }
  if (!options.token_file.empty()) {
    if (absl::Status status = UseToken(options.token_file, setup); !status.ok()) return status;
  }
  if (!options.report_path.empty() && !std::ofstream(options.report_path, std::ios::app)) {
    return absl::InvalidArgumentError(absl::StrCat("--report: cannot write ", options.report_path,
                                                   ": check that its folder exists"));
  }
  return absl::OkStatus();
}

// Returns the number of cores for each worker. All workers of the job run on this machine at the
// same time.
uint32_t ShareOfCores(uint32_t workers) {
  return std::max(static_cast<uint32_t>(AvailableCores()) / workers, 1u);
}

}  // namespace

absl::StatusOr<PreparedRun> PrepareRun(const RunOptions& options, Console* console) {
  PreparedRun setup;
  absl::StatusOr<job::LaunchJob> job = LoadRunJob(options);
  if (!job.ok()) return job.status();
  setup.spec = std::move(job->spec);
  setup.launch.command = std::move(job->command);
  if (!options.quiet) {
    if (const std::string note = job::MomentumNote(setup.spec); !note.empty()) console->Say(note);
    for (const std::string& warning : job::JobWarnings(setup.spec)) console->Warning(warning);
  }
  absl::StatusOr<RunStart> start = FindRunStart(setup.spec, options.resume);
  if (!start.ok()) return start.status();
  setup.start = *start;
  if (absl::Status status = CheckFlags(options, &setup); !status.ok()) return status;
  setup.launch.program_folder = options.program_folder;
  setup.launch.job_path = options.job_path;
  setup.launch.sets = options.sets;
  if (options.workers > 0) {
    setup.launch.sets.push_back(absl::StrCat("workers=", options.workers));
  }
  setup.launch.dense = options.dense;
  setup.launch.threads = options.threads > 0 ? options.threads : ShareOfCores(setup.spec.workers);
  setup.launch.environment = options.environment;
  setup.launch.workers = setup.spec.workers;
  setup.launch.http_port_base = options.http_port_base;
  setup.launch.trace_folder = options.trace_folder;
  for (uint32_t rank = 0; setup.spec.relays.enabled() && rank < setup.spec.workers; ++rank) {
    setup.launch.relay_of.push_back(job::FindRackPlace(setup.spec, rank).relay);
  }
  setup.launch.append_logs = setup.start.continues;
  if (absl::Status status = MakeLogFolder(options, &setup); !status.ok()) return status;
  if (setup.has_command()) {
    if (absl::Status status = PrepareCommand(options, job->text, &setup); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = PrepareToken(options, &setup); !status.ok()) return status;
  if (absl::Status status = PreparePorts(options, console, &setup); !status.ok()) return status;
  return setup;
}

}  // namespace sluice::cli
