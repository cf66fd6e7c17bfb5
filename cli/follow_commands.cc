// SPDX-License-Identifier: Apache-2.0
#include "cli/follow_commands.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "app/log_flags.h"
#include "app/transport_flags.h"
#include "base/enum_names.h"
#include "cli/follow.h"

namespace sluice::cli {

void AddFollowCommand(CLI::App* app, const std::string& grpc_proxy, std::function<int()>* chosen) {
  CLI::App* const follow = app->add_subcommand(
      "follow", "Keep a model file up to date with a running job, without taking part in it");
  follow->footer(
      "The job file needs the section `followers`. --exec runs CMD with sh after each version, "
      "with the variables SLUICE_VERSION, SLUICE_MODEL and SLUICE_PATCH. Versions that come while "
      "it runs may be skipped. Exit codes: 0 the job finished; 1 error; 75 no server answered; "
      "128 + N stopped by signal N. With a role file, this needs the role follower.");
  auto command = std::make_shared<FollowCommand>();
  command->security.grpc_proxy = grpc_proxy;
  follow->add_option("address", command->address, "Address of shard 0, or of a relay")
      ->required()
      ->type_name("HOST:PORT");
  follow->add_option("-o,--output", command->output, "Folder for model.safetensors")
      ->required()
      ->type_name("DIR");
  std::vector<std::string> names;
  for (const auto& entry : NamesOf(compress::ElementType{})) names.emplace_back(entry.name);
  auto type = std::make_shared<std::string>(NameOf(command->type));
  follow->add_option("--type", *type, "Type of the weights")
      ->check(CLI::IsMember(names))
      ->type_name("TYPE")
      ->capture_default_str();
  follow
      ->add_option("--patches", command->patches,
                   "Also write a patch for each version, and anchors, into this folder")
      ->type_name("DIR");
  follow
      ->add_option("--anchor-every", command->anchor_every,
                   "Write an anchor after this number of patches; files that are older than the "
                   "last two anchors are removed")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N")
      ->capture_default_str();
  follow->add_option("--exec", command->exec, "Run this command after each version")
      ->type_name("CMD");
  follow->add_flag("--once", command->once, "End after the first version");
  auto patience = std::make_shared<int64_t>(absl::ToInt64Seconds(command->patience));
  follow->add_option("--patience", *patience, "Seconds to wait for a server that does not answer")
      ->check(CLI::Range(1, 1000000))
      ->type_name("S")
      ->capture_default_str();
  app::AddTransportFlags(follow, &command->security);
  app::AddLogFlags(follow, &command->log);
  follow->callback([command, type, patience, chosen] {
    command->type = FindByName<compress::ElementType>(*type).value_or(command->type);
    command->patience = absl::Seconds(*patience);
    *chosen = [command] { return Follow(*command); };
  });
}

}  // namespace sluice::cli
