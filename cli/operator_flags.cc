#include "cli/operator_flags.h"

#include <CLI/CLI.hpp>
#include <cstdint>

#include "absl/time/time.h"
#include "cli/drain.h"

namespace sluice::cli {

void AddDrainFlags(const StatusCommand& command, std::function<int()>* chosen) {
  CLI::App* const drain = command.first;
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
  drain->callback([options, timeout, status = command.second, chosen] {
    options->status = *status;
    options->timeout = absl::Seconds(*timeout);
    *chosen = [options] { return DrainShard(*options); };
  });
}

}  // namespace sluice::cli
