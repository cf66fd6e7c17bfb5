// SPDX-License-Identifier: Apache-2.0
// Shrinks a simulated job that violates a promise to a short replay script that violates the same
// promise.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/sim/replay_script.h"

namespace sluice {

struct Shrunk {
  ReplayScript script;
  uint64_t runs = 0;  // Simulated jobs that the search ran.
};

inline constexpr uint64_t kShrinkRunsMax = 400;

// Removes faults, struck messages, parts of the job and listed draws while the job still violates
// the same promise. The search runs at most `runs_max` jobs, so that its time is bounded. Returns
// nullopt if the job violates no promise.
std::optional<Shrunk> Shrink(const SurvivalOptions& options, uint64_t runs_max = kShrinkRunsMax);
std::optional<Shrunk> Shrink(const RelaySimOptions& options, uint64_t runs_max = kShrinkRunsMax);

}  // namespace sluice
