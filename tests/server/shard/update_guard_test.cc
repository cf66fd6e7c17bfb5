// SPDX-License-Identifier: Apache-2.0
// Tests which updates a guard of an asynchronous shard finds.
#include "server/shard/update_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "absl/types/span.h"
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

UpdateGuard UpdateGuardWith(job::GuardPolicy policy, size_t size = 70'000) {
  return {{.policy = policy, .limit = 4}, 7, /*elements=*/{size}, kUpdateRanks};
}

TEST(UpdateGuard, ScalesALargeUpdateToTheMedianOfTheOthers) {
  for (const size_t size : {1uL, 300uL, 70'000uL}) {
    UpdateGuard guard = UpdateGuardWith(job::GuardPolicy::kClip, size);
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

constexpr uint64_t kFlippedFrom = 40;
constexpr uint32_t kFlipped = 2;

// Updates of all ranks share a direction and have noise of four times its norm.
std::vector<float> NoisyUpdate(uint32_t bundle, uint64_t step, uint32_t rank, size_t size) {
  CounterRandom common(5, bundle, step / 8);
  CounterRandom own(6, bundle, step, rank);
  std::vector<float> values;
  for (size_t i = 0; i < size; ++i) {
    values.push_back(static_cast<float>(common.Uniform() - 0.5 + 4 * (own.Uniform() - 0.5)));
    if (rank == kFlipped && step >= kFlippedFrom) values.back() = -values.back();
  }
  return values;
}

// Judges the updates of a step to all bundles. Rank 3 is four times slower than the others.
std::vector<Notice> JudgeStep(UpdateGuard* guard, absl::Span<const uint64_t> elements,
                              uint64_t step) {
  std::vector<Notice> notices;
  for (uint32_t rank = 0; rank < kUpdateRanks; ++rank) {
    if (rank == 3 && step % 4 != 0) continue;
    const uint64_t own_step = rank == 3 ? step / 4 : step;
    for (uint32_t bundle = 0; bundle < elements.size(); ++bundle) {
      if (elements[bundle] == 0) continue;
      const std::vector<float> update = NoisyUpdate(bundle, step, rank, elements[bundle]);
      for (Notice& notice : guard->Judge(own_step, bundle, rank, update).notices) {
        notices.push_back(std::move(notice));
      }
    }
  }
  return notices;
}

TEST(UpdateGuard, FindsAFlippedSignBesideASlowRank) {
  const std::vector<uint64_t> elements = {3'000, 0, 80'000};
  UpdateGuard guard({.policy = job::GuardPolicy::kSkip, .limit = 4}, 7, elements, kUpdateRanks);
  uint64_t step = 1;
  for (; step < kFlippedFrom; ++step) {
    ASSERT_THAT(JudgeStep(&guard, elements, step), SizeIs(0)) << step;
  }
  std::vector<Notice> notices;
  while (notices.empty() && step < kFlippedFrom + 20) notices = JudgeStep(&guard, elements, step++);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_THAT(notices[0].text, HasSubstr("rank 2 point against"));
  EXPECT_EQ(notices[0].fields.rank, kFlipped);
  const uint64_t left_out = guard.figures()[kFlipped].left_out;
  for (const uint64_t end = step + 30; step < end; ++step) {
    EXPECT_THAT(JudgeStep(&guard, elements, step), SizeIs(0)) << step;
  }
  EXPECT_EQ(guard.figures()[kFlipped].left_out, left_out + 60);
  EXPECT_TRUE(guard.figures()[kFlipped].suspect);
  for (const uint32_t rank : {0, 1, 3}) {
    EXPECT_GT(guard.figures()[rank].cosine, 0) << rank;
    EXPECT_EQ(guard.figures()[rank].left_out, 0u) << rank;
  }
}

// A job may have more shards than its model has chunks.
TEST(UpdateGuard, AShardMayHaveNoTrainedParameters) {
  UpdateGuard guard = UpdateGuardWith(job::GuardPolicy::kSkip, 0);
  EXPECT_EQ(guard.Judge(1, 0, 0, {}).factor, 1);
}

TEST(UpdateGuard, OnlyWarnsOfAFlippedSignWithPolicyClip) {
  UpdateGuard guard = UpdateGuardWith(job::GuardPolicy::kClip, 5'000);
  const std::vector<uint64_t> elements = {5'000};
  for (uint64_t step = 1; step < kFlippedFrom + 20; ++step) JudgeStep(&guard, elements, step);
  EXPECT_TRUE(guard.figures()[kFlipped].opposes);
  EXPECT_EQ(guard.figures()[kFlipped].left_out, 0u);
  EXPECT_EQ(guard.Judge(99, 0, kFlipped, NoisyUpdate(0, 99, kFlipped, 5'000)).factor, 1);
}

}  // namespace
}  // namespace sluice::server
