// SPDX-License-Identifier: Apache-2.0
// Tests which updates a guard of an asynchronous shard finds.
#include "server/shard/update_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint32_t kUpdateRanks = 4;

// Returns random values. Their second half is 100 times smaller, as in a layer of another scale.
std::vector<float> RandomUpdate(uint64_t step, uint32_t rank, float scale, size_t size = 70'000) {
  CounterRandom random(3, step, rank);
  std::vector<float> values;
  for (size_t i = 0; i < size; ++i) {
    values.push_back(scale * (i < size / 2 ? 1.0f : 0.01f) *
                     static_cast<float>(random.Uniform() - 0.5));
  }
  return values;
}

float JudgeUpdate(UpdateGuard* guard, uint64_t step, uint32_t rank, float scale,
                  size_t size = 70'000) {
  return guard->Judge(step, 0, rank, RandomUpdate(step, rank, scale, size)).factor;
}

UpdateGuard UpdateGuardWith(job::GuardPolicy policy) {
  return {{.policy = policy, .limit = 4}, 7, /*bundles=*/1, kUpdateRanks};
}

TEST(UpdateGuard, ScalesALargeUpdateToTheMedianOfTheOthers) {
  for (const size_t size : {1uL, 300uL, 70'000uL}) {
    UpdateGuard guard = UpdateGuardWith(job::GuardPolicy::kClip);
    for (const uint32_t rank : {0, 1, 2}) EXPECT_EQ(JudgeUpdate(&guard, 1, rank, 1, size), 1);
    if (size == 1) continue;  // One random value may be near 0.
    EXPECT_NEAR(JudgeUpdate(&guard, 1, 3, 100, size), 0.01, 0.002) << size;
    EXPECT_EQ(guard.figures()[3].clipped, 1u);
  }
}

TEST(UpdateGuard, NamesARankOnceWhileItLasts) {
  UpdateGuard guard = UpdateGuardWith(job::GuardPolicy::kSkip);
  for (const uint32_t rank : {0, 1, 2}) JudgeUpdate(&guard, 1, rank, 1);
  const UpdateGuard::Verdict first = guard.Judge(1, 0, 3, RandomUpdate(1, 3, 100));
  EXPECT_EQ(first.factor, 0);
  ASSERT_THAT(first.notices, SizeIs(1));
  EXPECT_THAT(first.notices[0].text, HasSubstr("rank 3 has 1"));
  EXPECT_THAT(guard.Judge(2, 0, 3, RandomUpdate(2, 3, 100)).notices, SizeIs(0));
  EXPECT_TRUE(guard.figures()[3].suspect);
  EXPECT_EQ(guard.figures()[3].left_out, 2u);
  EXPECT_EQ(JudgeUpdate(&guard, 3, 3, 1), 1);
  EXPECT_EQ(JudgeUpdate(&guard, 102, 3, 1), 1);
  EXPECT_FALSE(guard.figures()[3].suspect);
}

// Norms fall and rise together as training goes on.
TEST(UpdateGuard, FollowsTheNormsOfAllRanks) {
  UpdateGuard guard = UpdateGuardWith(job::GuardPolicy::kSkip);
  float scale = 1;
  for (uint64_t step = 1; step < 60; ++step) {
    scale *= step < 30 ? 0.8f : 1.25f;
    for (uint32_t rank = 0; rank < kUpdateRanks; ++rank) {
      EXPECT_EQ(JudgeUpdate(&guard, step, rank, scale), 1) << step;
    }
  }
}

// A rank must not get its large updates accepted by sending many.
TEST(UpdateGuard, LargeUpdatesDoNotRaiseTheBound) {
  UpdateGuard guard = UpdateGuardWith(job::GuardPolicy::kSkip);
  for (const uint32_t rank : {0, 1, 2}) JudgeUpdate(&guard, 1, rank, 1);
  for (uint64_t step = 1; step < 50; ++step) EXPECT_EQ(JudgeUpdate(&guard, step, 3, 100), 0);
  EXPECT_EQ(JudgeUpdate(&guard, 2, 0, 1), 1);
}

TEST(UpdateGuard, JudgesNothingWithoutAMajority) {
  UpdateGuard guard = UpdateGuardWith(job::GuardPolicy::kSkip);
  JudgeUpdate(&guard, 1, 0, 1);
  EXPECT_EQ(JudgeUpdate(&guard, 1, 3, 100), 1);
}

}  // namespace
}  // namespace sluice::server
