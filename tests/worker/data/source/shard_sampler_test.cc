// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/shard_sampler.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

using ::testing::IsEmpty;

TEST(ShardSamplerTest, EachSampleGoesToOneRankOnceAnEpoch) {
  std::vector<uint32_t> all;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const ShardSampler sampler({.samples = 100, .ranks = 3, .rank = rank, .seed = 5});
    const std::vector<uint32_t> dealt = sampler.Deal(2);
    all.insert(all.end(), dealt.begin(), dealt.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<uint32_t> expected(100);
  std::iota(expected.begin(), expected.end(), 0u);
  EXPECT_EQ(all, expected);
}

TEST(ShardSamplerTest, OtherRanksAreDealtWhatIsLeft) {
  // Two ranks take the first three steps of a pass. Three ranks then take two steps, and one rank
  // takes all remaining samples.
  std::vector<uint32_t> seen;
  const auto take = [&](uint32_t ranks, uint64_t offset, uint64_t steps) {
    uint64_t after = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const ShardSampler sampler(
          {.samples = 101, .ranks = ranks, .rank = rank, .batch_size = 5, .seed = 5});
      const std::vector<uint32_t> dealt = sampler.Deal(2, offset);
      for (uint64_t step = 0; step < std::min(steps, sampler.StepsAfter(offset)); ++step) {
        const absl::Span<const uint32_t> batch = sampler.Batch(dealt, step, 0);
        seen.insert(seen.end(), batch.begin(), batch.end());
      }
      after = sampler.OffsetAfter(offset, steps);
    }
    return after;
  };
  const uint64_t of_two = take(2, 0, 3);
  EXPECT_EQ(of_two, 30u);
  EXPECT_EQ(seen.size(), 30u);
  const uint64_t of_three = take(3, of_two, 2);
  EXPECT_EQ(seen.size(), 60u);
  EXPECT_EQ(take(1, of_three, 1000), 101u);
  std::sort(seen.begin(), seen.end());
  std::vector<uint32_t> expected(101);
  std::iota(expected.begin(), expected.end(), 0u);
  EXPECT_EQ(seen, expected) << "each sample is dealt exactly once";
  const ShardSampler last({.samples = 101, .ranks = 3});
  EXPECT_EQ(last.StepsAfter(101), 0u);
  EXPECT_THAT(last.Deal(0, 101), IsEmpty());
}

TEST(ShardSamplerTest, OrderIsAFunctionOfSeedAndEpoch) {
  const ShardSampler one({.samples = 50, .seed = 1});
  const ShardSampler same({.samples = 50, .seed = 1});
  const ShardSampler other({.samples = 50, .seed = 2});
  EXPECT_EQ(one.Deal(0), same.Deal(0));
  EXPECT_NE(one.Deal(0), one.Deal(1));
  EXPECT_NE(one.Deal(0), other.Deal(0));
  EXPECT_FALSE(std::is_sorted(one.Deal(0).begin(), one.Deal(0).begin() + 10));
}

TEST(ShardSamplerTest, RanksWithFewerSamplesRunOutButCountTheSameSteps) {
  // 9 samples for 2 ranks in batches of 4 give 5 and 4 samples. There are 2 steps, and the second
  // is empty for rank 1.
  const ShardSampler more({.samples = 9, .ranks = 2, .rank = 0, .batch_size = 4});
  const ShardSampler fewer({.samples = 9, .ranks = 2, .rank = 1, .batch_size = 4});
  EXPECT_EQ(more.steps_per_epoch(), 2);
  EXPECT_EQ(fewer.steps_per_epoch(), 2);
  const std::vector<uint32_t> long_deal = more.Deal(0);
  const std::vector<uint32_t> short_deal = fewer.Deal(0);
  EXPECT_EQ(more.Batch(long_deal, 0, 0).size(), 4);
  EXPECT_EQ(more.Batch(long_deal, 1, 0).size(), 1);
  EXPECT_EQ(fewer.Batch(short_deal, 0, 0).size(), 4);
  EXPECT_THAT(fewer.Batch(short_deal, 1, 0), IsEmpty());
}

TEST(ShardSamplerTest, PassesOfAStepFollowEachOther) {
  const ShardSampler sampler({.samples = 10, .batch_size = 2, .passes_per_step = 2});
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  const std::vector<uint32_t> dealt = sampler.Deal(0);
  std::vector<uint32_t> seen;
  for (uint64_t step = 0; step < 3; ++step) {
    for (uint32_t pass = 0; pass < 2; ++pass) {
      const auto batch = sampler.Batch(dealt, step, pass);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
  }
  EXPECT_EQ(seen, dealt);
  EXPECT_THAT(sampler.Batch(dealt, 2, 1), IsEmpty());
}

TEST(ShardSamplerTest, ARankMayHaveNoSampleAtAll) {
  const ShardSampler sampler({.samples = 1, .ranks = 2, .rank = 1});
  EXPECT_EQ(sampler.steps_per_epoch(), 1);
  EXPECT_THAT(sampler.Deal(0), IsEmpty());
}

}  // namespace
}  // namespace sluice::worker
