// Records simulated jobs as replay scripts, and runs scripts.
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/sim/replay_script.h"
#include "tests/sim/shrink.h"
#include "tests/sim/sim_world.h"
#include "tests/sim/survival_job.h"

namespace sluice {
namespace {

using Draws = std::vector<std::pair<std::string, uint64_t>>;

ReplayScript RecordAll(const SurvivalOptions& options, Draws* draws, SurvivalReport* report) {
  ReplayScript script;
  script.options = options;
  script.otherwise = options.fault_seed;
  SimWorld world(options.fault_seed);
  world.chance.RecordInto(draws, &script);
  *report = RunJob(options, &world);
  return script;
}

}  // namespace

ReplayScript Record(const SurvivalOptions& options, SurvivalReport* report) {
  Draws draws;
  ReplayScript script = RecordAll(options, &draws, report);
  for (const auto& [channel, draw] : draws) script.draws[channel].push_back(draw);
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
  return RunJob(script.options, &world);
}

}  // namespace sluice
