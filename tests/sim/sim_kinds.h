// SPDX-License-Identifier: Apache-2.0
// The kinds of simulated jobs, each as a function of a seed. The tests and the program `simulate`,
// which CI and the nightly runs use, share this table.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/sim/shrink.h"
#include "tests/sim/survival.h"

namespace sluice {

struct SimOutcome {
  std::vector<std::string> violations;  // Empty if every promise held.
  std::string job;                      // A description for logs.
  std::map<Fault, uint64_t> faults;     // Faults that struck, at all levels.
  uint32_t trace_hash = 0;              // As in SurvivalReport.
  uint32_t parameters_hash = 0;
};

struct SimKind {
  const char* name;
  SimOutcome (*run)(uint64_t seed);
  std::optional<Shrunk> (*shrink)(uint64_t seed, uint64_t runs_max);
};

// The kinds are fixed, elastic, quorum, relay, async, elastic_async and plans.
absl::Span<const SimKind> SimKinds();

// Draws jobs with plans of all kinds in turn: from a schedule or from measurements; with all ranks,
// a quorum or elastic workers.
SurvivalOptions RandomPlannedJob(uint64_t seed);

}  // namespace sluice
