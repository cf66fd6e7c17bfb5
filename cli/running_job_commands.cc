// SPDX-License-Identifier: Apache-2.0
#include "cli/running_job_commands.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "app/log_flags.h"
#include "app/transport_flags.h"
#include "base/enum_names.h"
#include "base/log_level.h"
#include "cli/administer.h"
#include "cli/debug_bundle.h"
#include "cli/drain.h"
#include "cli/status.h"
#include "cli/why.h"

namespace sluice::cli {
namespace {

struct CommandLine {
  const ProcessOptions& process;
  CLI::App* app;
  std::function<int()>* chosen;
};

// Adds a command that asks a coordinator.
std::pair<CLI::App*, std::shared_ptr<StatusOptions>> AddCommand(const CommandLine& line,
                                                                const char* name,
                                                                const char* what) {
  CLI::App* const command = line.app->add_subcommand(name, what);
  auto options = std::make_shared<StatusOptions>();
  options->console = line.process.console;
  options->security.grpc_proxy = line.process.grpc_proxy;
  command->add_option("--coordinator", options->coordinator, "Address of shard 0")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app::AddTransportFlags(command, &options->security);
  return {command, options};
}

void AddStatus(const CommandLine& line) {
  const auto [status, options] = AddCommand(line, "status", "Show the status of a running job");
  status->add_flag("--json", options->json,
                   "Print the coordinator's answer as JSON; with --watch one line per answer");
  status->add_flag("--watch", options->watch, "Show it every second until the job ends or Ctrl-C");
  status->callback([shared = options, chosen = line.chosen] {
    *chosen = [shared] { return ShowStatus(*shared); };
  });
}

void AddWhy(const CommandLine& line) {
  const auto [why, options] =
      AddCommand(line, "why", "Say in words what a job waits for and what to do about it");
  why->callback([shared = options, chosen = line.chosen] {
    *chosen = [shared] { return ShowWhy(*shared); };
  });
}

void AddEvict(const CommandLine& line) {
  const auto [evict, options] = AddCommand(
      line, "evict", "Take a rank from its worker; the job continues as after the worker's loss");
  auto command = std::make_shared<EvictCommand>();
  evict->footer(
      "An elastic job continues with the other workers. Other jobs with checkpoints wait for "
      "another process with that rank, up to server.rejoin_timeout. The evicted process ends and "
      "cannot join the run again. With a role file, this needs the role administrator.");
  evict->add_option("rank", command->rank, "The rank")->required()->type_name("RANK");
  evict->add_option("--reason", command->reason, "A reason for the logs")->type_name("TEXT");
  evict->add_flag("--allow-rollback", command->allow_rollback,
                  "Evict the worker even if the job then rolls back to its newest checkpoint");
  evict->callback([shared = options, command, chosen = line.chosen] {
    *chosen = [shared, command] { return EvictRank(*shared, *command); };
  });
}

void AddSet(const CommandLine& line) {
  const auto [set, options] =
      AddCommand(line, "set", "Change settings of a running job until shard 0 is restarted");
  auto command = std::make_shared<SetCommand>();
  set->footer(
      "With a role file, this needs the role administrator. Without a setting to change, "
      "it shows the settings.");
  set->add_option_function<std::string>(
         "--lease-timeout",
         [command](const std::string& text) {
           absl::Duration lease;
           if (!absl::ParseDuration(text, &lease)) {
             throw CLI::ValidationError("--lease-timeout",
                                        "\"" + text + "\" is not a duration, such as 30s");
           }
           command->lease_timeout = lease;
         },
         "Time without a report after which the coordinator counts a process as lost "
         "(server.lease_timeout of the job file)")
      ->type_name("DURATION");
  set->add_option_function<std::string>(
         "--log-level",
         [command](const std::string& name) { command->log_level = FindByName<LogLevel>(name); },
         "Lowest level that all servers and workers of the job log: debug, info, warning or error. "
         "With relays, give it to each relay's address too")
      ->check(CLI::IsMember(app::LogLevelNames()))
      ->type_name("LEVEL");
  set->callback([shared = options, command, chosen = line.chosen] {
    *chosen = [shared, command] { return ChangeSettings(*shared, *command); };
  });
}

void AddDrain(const CommandLine& line) {
  const auto [drain, status] = AddCommand(
      line, "drain", "Request a checkpoint and say whether a shard may be restarted now");
  drain->footer(
      "Exit codes: 0 the shard may be restarted; 1 it may not, or there is no answer; 2 a flag is "
      "wrong.");
  auto options = std::make_shared<DrainOptions>();
  auto timeout = std::make_shared<int64_t>(absl::ToInt64Seconds(options->timeout));
  drain->add_option("shard", options->shard, "Number of the shard")->required()->type_name("SHARD");
  drain->add_flag("--check", options->check_only, "Only answer; request no checkpoint");
  drain->add_option("--timeout", *timeout, "Seconds until the checkpoint must be complete")
      ->check(CLI::Range(1, 86400))
      ->type_name("S")
      ->capture_default_str();
  drain->callback([options, timeout, shared = status, chosen = line.chosen] {
    options->status = *shared;
    options->timeout = absl::Seconds(*timeout);
    *chosen = [options] { return DrainShard(*options); };
  });
}

void AddDebugBundle(const CommandLine& line) {
  const auto [bundle, status] =
      AddCommand(line, "debug-bundle", "Collect status, logs and metrics into one file");
  bundle->footer(
      "What cannot be collected is listed in missing.txt. Tokens, keys and unknown keys of the job "
      "file are left out.");
  auto options = std::make_shared<DebugBundleOptions>(line.process.bundle);
  bundle
      ->add_option("--log-dir", options->log_folders,
                   "Folder of logs: the last MiB of each of its newest files; may be repeated")
      ->type_name("DIR")
      ->allow_extra_args(false);
  bundle->add_option("--job", options->job_path, "Job file (YAML)")->type_name("FILE");
  bundle
      ->add_option("--metrics", options->metrics,
                   "HTTP port of a process, without TLS: its /metrics; may be repeated")
      ->type_name("HOST:PORT")
      ->allow_extra_args(false);
  bundle
      ->add_option("--output", options->output,
                   "The archive, a new file (default: sluice-debug-TIME.tar.gz here)")
      ->type_name("FILE");
  bundle->callback([options, shared = status, chosen = line.chosen] {
    options->status = *shared;
    *chosen = [options] { return MakeDebugBundle(*options); };
  });
}

}  // namespace

void AddRunningJobCommands(const ProcessOptions& process, CLI::App* app,
                           std::function<int()>* chosen) {
  const CommandLine line{process, app, chosen};
  AddStatus(line);
  AddWhy(line);
  AddDrain(line);
  AddDebugBundle(line);
  AddEvict(line);
  AddSet(line);
}

}  // namespace sluice::cli
