// SPDX-License-Identifier: Apache-2.0
// Selects the seeds that a simulation runs: SLUICE_SIM_SEED=<seed> runs only that seed,
// SLUICE_SIM_SEEDS=<count> runs that many seeds.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"

namespace sluice {

inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

inline uint64_t FirstSeed() { return FromEnvironment("SLUICE_SIM_SEED", 1); }

inline uint64_t SeedCount(uint64_t usual) {
  return FromEnvironment("SLUICE_SIM_SEEDS", std::getenv("SLUICE_SIM_SEED") == nullptr ? usual : 1);
}

}  // namespace sluice
