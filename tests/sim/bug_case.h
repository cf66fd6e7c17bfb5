// SPDX-License-Identifier: Apache-2.0
// Planted bugs of simulated jobs, each with the symptom that reveals it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "tests/sim/survival.h"

namespace sluice {

struct BugCase {
  SurvivalBug bug;
  const char* name;
  const char* symptom;  // Text that a violation must contain.
};

inline std::string BugName(const testing::TestParamInfo<BugCase>& bug) { return bug.param.name; }

// Runs jobs with seeds from 1 on until one reveals the bug; the test fails if none does.
inline void ExpectFound(const BugCase& bug, uint64_t seeds,
                        SurvivalOptions (*options_of)(uint64_t seed)) {
  std::string seen;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SurvivalOptions options = options_of(seed);
    options.bug = bug.bug;
    const SurvivalReport report = RunSurvival(options);
    for (const std::string& violation : report.violations) {
      if (absl::StrContains(violation, bug.symptom)) {
        testing::Test::RecordProperty("seeds", static_cast<int>(seed));
        GTEST_LOG_(INFO) << "found by seed " << seed << ": " << violation;
        return;
      }
      seen = violation;
    }
  }
  FAIL() << "not found within " << seeds << " seeds; seen: " << seen;
}

}  // namespace sluice
