// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/runs_hash.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

SimOutcome OutcomeOf(uint32_t trace_hash, uint32_t parameters_hash) {
  SimOutcome outcome;
  outcome.trace_hash = trace_hash;
  outcome.parameters_hash = parameters_hash;
  return outcome;
}

TEST(RunsHashTest, TheOrderInWhichRunsEndDoesNotMatter) {
  RunsHash forward;
  RunsHash backward;
  for (uint32_t i = 0; i < 5; ++i) forward.Add(i, OutcomeOf(i, 10 + i));
  for (uint32_t i = 5; i-- > 0;) backward.Add(i, OutcomeOf(i, 10 + i));
  EXPECT_EQ(forward.value(), backward.value());
}

TEST(RunsHashTest, EachHashAndItsPlaceMatter) {
  const auto hash = [](uint32_t trace, uint32_t parameters, size_t place) {
    RunsHash runs;
    runs.Add(2, OutcomeOf(7, 7));
    runs.Add(place, OutcomeOf(trace, parameters));
    return runs.value();
  };
  EXPECT_NE(hash(1, 2, 0), hash(2, 1, 0));
  EXPECT_NE(hash(1, 2, 0), hash(1, 3, 0));
  EXPECT_NE(hash(1, 2, 0), hash(1, 2, 1));
}

TEST(RunsHashTest, TheSeedsOfEveryKindHaveTheSameHashEachTime) {
  for (const SimKind& kind : SimKinds()) {
    RunsHash first;
    RunsHash second;
    for (size_t place = 0; place < 3; ++place) {
      first.Add(place, kind.run(1 + place));
      second.Add(2 - place, kind.run(3 - place));
    }
    EXPECT_EQ(first.value(), second.value()) << kind.name;
  }
}

}  // namespace
}  // namespace sluice
