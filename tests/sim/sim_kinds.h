// The kinds of simulated jobs, each as a function of a seed. The tests and the program `simulate`,
// which CI and the nightly runs use, share this table.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/sim/survival.h"

namespace sluice {

struct SimOutcome {
  std::vector<std::string> violations;  // Empty if every promise held.
  std::string job;                      // A description for logs.
};

struct SimKind {
  const char* name;
  SimOutcome (*run)(uint64_t seed);
  // Returns the job of a seed, for Shrink; null for kinds without replay scripts.
  SurvivalOptions (*job)(uint64_t seed);
};

// The kinds are fixed, elastic, quorum, relay, async and plans.
absl::Span<const SimKind> SimKinds();

// Draws jobs with plans of all kinds in turn: from a schedule or from measurements; with all ranks,
// a quorum or elastic workers.
SurvivalOptions RandomPlannedJob(uint64_t seed);

}  // namespace sluice
