// ReplayScript: one simulated job and everything that happens to it, written out, so that a later
// change of how jobs and faults are drawn from a seed does not change it. docs/simulation.md has
// the format.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/sim/survival.h"

namespace sluice {

struct ReplayFault {
  int64_t at = 0;  // Microseconds from the start.
  Fault fault = Fault::kBreak;
  std::vector<std::pair<std::string, uint64_t>> choices{};  // Targets and durations, by name.
};

// Channels are named as ToString(Channel) writes them.
struct ReplayScript {
  SurvivalOptions options;  // Its faults are those below, in this order.
  std::vector<ReplayFault> faults{};
  std::map<std::string, std::vector<uint64_t>> draws{};  // The first ones of each channel.
  std::map<std::pair<Fault, std::string>, std::set<uint64_t>> struck{};  // Messages, from 0 on.
  uint64_t otherwise = 0;  // The seed of the channels' later draws.
  std::vector<std::pair<std::string, uint64_t>> expected{};  // At least so many must be counted.
  std::string shows{};    // How the violation began for which the script was written.
  std::string comment{};  // For people; lines without "# ".
};

std::string FormatReplay(const ReplayScript& script);

// INVALID_ARGUMENT names the line and what is wrong with it.
absl::StatusOr<ReplayScript> ParseReplay(absl::string_view text);

// One line "option NAME VALUE" for each field.
std::string FormatOptions(const SurvivalOptions& options);
absl::Status SetOption(absl::string_view name, absl::string_view value, SurvivalOptions* options);

// As names in scripts: without spaces.
std::string ScriptName(Fault fault);
// What may be expected of a report: a fault by its name, "rollbacks", ...; INVALID_ARGUMENT.
absl::StatusOr<uint64_t> CountOf(absl::string_view name, const SurvivalReport& report);

// Runs the job and writes it down: the script goes as the job did.
ReplayScript Record(const SurvivalOptions& options, SurvivalReport* report);

// Runs the job; if it breaks a promise, writes FOLDER/seed_N.replay, which breaks the same promise
// with as few listed draws as that takes.
SurvivalReport RunAndExport(const SurvivalOptions& options, const std::string& folder);

// Runs it. Equal scripts give equal runs.
SurvivalReport RunReplay(const ReplayScript& script);

}  // namespace sluice
