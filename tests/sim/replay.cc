// Writes simulated jobs down as replay scripts, and runs scripts.
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/sim/replay_script.h"
#include "tests/sim/survival_run.h"

namespace sluice {
namespace {

using Draws = std::vector<std::pair<std::string, uint64_t>>;

// Without its numbers: two runs that differ in times break the same promise.
std::string KindOf(absl::string_view violation) {
  std::string kind;
  for (const char c : violation.substr(0, violation.find(':'))) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) kind.push_back(c);
  }
  return kind;
}

ReplayScript RecordAll(const SurvivalOptions& options, Draws* draws, SurvivalReport* report) {
  ReplayScript script;
  script.options = options;
  script.otherwise = options.fault_seed;
  SimWorld world(options.fault_seed);
  world.chance.RecordInto(draws, &script);
  *report = RunJob(options, &world);
  return script;
}

void List(const Draws& draws, size_t count, ReplayScript* script) {
  script->draws.clear();
  for (size_t i = 0; i < count; ++i) script->draws[draws[i].first].push_back(draws[i].second);
}

// How many of the first draws must be listed so that the same promise is broken.
size_t FewestDraws(const Draws& draws, const std::string& kind, ReplayScript* script) {
  const auto shows = [&](size_t count) {
    List(draws, count, script);
    const SurvivalReport report = RunReplay(*script);
    return !report.violations.empty() && KindOf(report.violations[0]) == kind;
  };
  if (shows(0)) return 0;
  size_t too_few = 0;
  size_t enough = draws.size();
  while (enough - too_few > 1) {
    const size_t middle = too_few + (enough - too_few) / 2;
    (shows(middle) ? enough : too_few) = middle;
  }
  return enough;
}

}  // namespace

ReplayScript Record(const SurvivalOptions& options, SurvivalReport* report) {
  Draws draws;
  ReplayScript script = RecordAll(options, &draws, report);
  List(draws, draws.size(), &script);
  return script;
}

SurvivalReport RunAndExport(const SurvivalOptions& options, const std::string& folder) {
  Draws draws;
  SurvivalReport report;
  ReplayScript script = RecordAll(options, &draws, &report);
  if (report.violations.empty()) return report;
  Check(options.rack_of == 0 && options.weights.empty(), "a job of relays has no replay script");
  const std::string kind = KindOf(report.violations[0]);
  List(draws, FewestDraws(draws, kind, &script), &script);
  const SurvivalReport replayed = RunReplay(script);
  script.comment = absl::StrCat("Seed ", options.data_seed, ".\n");
  if (!replayed.violations.empty()) script.shows = replayed.violations[0];
  for (const char* name : {"starts_unheard", "late_failed_writes"}) {
    const uint64_t count = *CountOf(name, replayed);
    if (count > 0) script.expected.emplace_back(name, count);
  }
  for (const auto& [fault, count] : replayed.faults) {
    if (count > 0) script.expected.emplace_back(ScriptName(fault), count);
  }
  std::ofstream(absl::StrCat(folder, "/seed_", options.data_seed, ".replay"))
      << FormatReplay(script);
  return report;
}

SurvivalReport RunReplay(const ReplayScript& script) {
  SimWorld world(/*fault_seed=*/0);
  world.chance.Follow(&script);
  return RunJob(script.options, &world);
}

}  // namespace sluice
