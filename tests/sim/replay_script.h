// SPDX-License-Identifier: Apache-2.0
// ReplayScript records one simulated job and all its events explicitly, so that the script stays
// valid when the drawing of jobs and faults from seeds changes. docs/simulation.md describes the
// format.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/sim/relay_sim.h"
#include "tests/sim/survival.h"

namespace sluice {

struct ReplayFault {
  int64_t at = 0;  // Microseconds from the start.
  Fault fault = Fault::kBreak;
  bool in_rack = false;  // Strikes a rack of a job with relays, not the parent job.
  std::vector<std::pair<std::string, uint64_t>> choices{};  // Targets and durations, by name.
};

// Channel names are those of ToString(Channel).
struct ReplayScript {
  SurvivalOptions options;  // `options.faults` repeats the faults below, in the same order.
  // For a job with relays: the workers per rack, and the codec from workers to their relay. The
  // options are then the parent job's, whose ranks follow from the racks.
  std::vector<uint32_t> racks{};
  compress::CodecSpec rack_uplink{};
  std::vector<ReplayFault> faults{};
  std::map<std::string, std::vector<uint64_t>> draws{};  // The first draws of each channel.
  // Numbers of the struck messages, from 0.
  std::map<std::pair<Fault, std::string>, std::set<uint64_t>> struck{};
  uint64_t otherwise = 0;  // Seeds all later draws of the channels.
  std::vector<std::pair<std::string, uint64_t>> expected{};  // Minimum counts of events.
  std::string shows{};    // The beginning of the violation that the script reproduced.
  std::string comment{};  // A description, without the leading "# " of its lines.
};

std::string FormatReplay(const ReplayScript& script);

// Fails with INVALID_ARGUMENT, which names the line and the problem.
absl::StatusOr<ReplayScript> ParseReplay(absl::string_view text);

// Writes one line "option NAME VALUE" per field.
std::string FormatOptions(const SurvivalOptions& options);
absl::Status SetOption(absl::string_view name, absl::string_view value, SurvivalOptions* options);

// Returns the fault's name in scripts, without spaces.
std::string ScriptName(Fault fault);
// Returns an event's count in `report`: a fault by its name, "rollbacks", ... Fails with
// INVALID_ARGUMENT for an unknown name.
absl::StatusOr<uint64_t> CountOf(absl::string_view name, const SurvivalReport& report);

// Runs the job and records it. Replaying the script repeats the same run.
ReplayScript Record(const SurvivalOptions& options, SurvivalReport* report);
ReplayScript Record(const RelaySimOptions& options, SurvivalReport* report);

// Runs the job. If the job violates a promise, writes the script that Shrink returns to
// FOLDER/seed_N.replay.
SurvivalReport RunAndExport(const SurvivalOptions& options, const std::string& folder);

// Runs the script. Equal scripts give equal runs.
SurvivalReport RunReplay(const ReplayScript& script);

}  // namespace sluice
