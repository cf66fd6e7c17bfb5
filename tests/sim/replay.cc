// SPDX-License-Identifier: Apache-2.0
// Records simulated jobs as replay scripts, and runs scripts.
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/sim/replay_script.h"
#include "tests/sim/shrink.h"
#include "tests/sim/sim_world.h"
#include "tests/sim/survival_job.h"

namespace sluice {
namespace {

using Draws = std::vector<std::pair<std::string, uint64_t>>;

// Records everything that `run` draws into `script`, which has the options.
SurvivalReport RecordRun(ReplayScript* script,
                         const std::function<SurvivalReport(SimWorld* world)>& run) {
  Draws draws;
  script->otherwise = script->options.fault_seed;
  SimWorld world(script->options.fault_seed);
  world.chance.RecordInto(&draws, script);
  SurvivalReport report = run(&world);
  for (const auto& [channel, draw] : draws) script->draws[channel].push_back(draw);
  return report;
}

RelaySimOptions RelayJobOf(const ReplayScript& script) {
  RelaySimOptions options{
      .above = script.options, .racks = script.racks, .uplink = script.rack_uplink, .faults = {}};
  options.above.ranks = static_cast<uint32_t>(script.racks.size());
  options.above.weights = script.racks;
  options.above.faults.clear();
  for (const ReplayFault& fault : script.faults) {
    options.faults.push_back(
        {fault.fault, fault.in_rack ? RelayLevel::kRack : RelayLevel::kParentJob});
  }
  return options;
}

}  // namespace

ReplayScript Record(const SurvivalOptions& options, SurvivalReport* report) {
  ReplayScript script;
  script.options = options;
  *report = RecordRun(&script, [&](SimWorld* world) { return RunJob(options, world); });
  return script;
}

ReplayScript Record(const RelaySimOptions& options, SurvivalReport* report) {
  ReplayScript script;
  script.options = options.above;
  script.racks = options.racks;
  script.rack_uplink = options.uplink;
  *report = RecordRun(&script, [&](SimWorld* world) { return RunRelays(options, world).all; });
  for (size_t i = 0; i < options.faults.size(); ++i) {
    script.options.faults.push_back(options.faults[i].fault);
    script.faults[i].in_rack = options.faults[i].level == RelayLevel::kRack;
  }
  return script;
}

SurvivalReport RunAndExport(const SurvivalOptions& options, const std::string& folder) {
  SimWorld world(options.fault_seed);
  const SurvivalReport report = RunJob(options, &world);
  if (report.violations.empty()) return report;
  Check(options.rack_of == 0 && options.weights.empty(), "a job of relays has no replay script");
  std::ofstream(absl::StrCat(folder, "/seed_", options.data_seed, ".replay"))
      << FormatReplay(Shrink(options)->script);
  return report;
}

SurvivalReport RunReplay(const ReplayScript& script) {
  SimWorld world(/*fault_seed=*/0);
  world.chance.Follow(&script);
  if (!script.racks.empty()) return RunRelays(RelayJobOf(script), &world).all;
  return RunJob(script.options, &world);
}

}  // namespace sluice
