#include "worker/train/rounds.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::worker {
namespace {

TEST(RoundsTest, LocalSgdHasSeveralStepsInEach) {
  job::JobSpec spec;
  spec.exchange.mode = job::Mode::kLocalSgd;
  spec.local.steps = 4;
  const Rounds rounds(spec);
  std::vector<uint64_t> ends;
  for (uint64_t step = 1; step <= 10; ++step) {
    if (rounds.EndsWith(step, 10)) ends.push_back(step);
  }
  EXPECT_EQ(ends, (std::vector<uint64_t>{4, 8, 10}));
  for (uint64_t round = 0; round < ends.size(); ++round) {
    EXPECT_EQ(rounds.After(ends[round]), round + 1);
  }
  EXPECT_EQ(rounds.After(0), 0u);
}

TEST(RoundsTest, ElsewhereARoundIsAStep) {
  job::JobSpec spec;
  spec.local.steps = 4;  // Only mode local_sgd uses this value.
  const Rounds rounds(spec);
  for (uint64_t step = 1; step <= 5; ++step) {
    EXPECT_TRUE(rounds.EndsWith(step, 5));
    EXPECT_EQ(rounds.After(step), step);
  }
}

}  // namespace
}  // namespace sluice::worker
