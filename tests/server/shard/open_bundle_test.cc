// SPDX-License-Identifier: Apache-2.0
#include "server/shard/open_bundle.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compress/codec_table.h"
#include "compress/frame.h"
#include "tests/compress/test_data.h"

namespace sluice::server {
namespace {

TEST(SumPoolTest, GivesMemoryThatWasUsedBefore) {
  SumPool pool(100);
  std::vector<float> sum = pool.Take(80);
  EXPECT_EQ(sum.size(), 80u);
  const float* const memory = sum.data();
  pool.GiveBack(std::move(sum));
  const std::vector<float> again = pool.Take(60);
  EXPECT_EQ(again.size(), 60u);
  EXPECT_EQ(again.data(), memory);
}

TEST(SumPoolTest, GrowsForALargerOne) {
  SumPool pool(100);
  pool.GiveBack(pool.Take(10));
  EXPECT_EQ(pool.Take(90).size(), 90u);
}

// Returns the number of elements that the pool keeps for reuse. Takes all of them to count them: a
// request for 0 elements gets a spare vector if there is one.
size_t SpareElements(SumPool* pool) {
  std::vector<std::vector<float>> spare;
  size_t total = 0;
  do {
    spare.push_back(pool->Take(0));
    total += spare.back().capacity();
  } while (spare.back().capacity() > 0);
  for (std::vector<float>& sum : spare) pool->GiveBack(std::move(sum));
  return total;
}

// Uses many small sums at once, and then many large ones. The pool must not keep as many large sums
// as it kept small ones.
TEST(SumPoolTest, KeepsNoMoreThanItMay) {
  SumPool pool(100);
  for (const size_t elements : {10u, 30u, 50u}) {
    std::vector<std::vector<float>> taken;
    for (int i = 0; i < 10; ++i) taken.push_back(pool.Take(elements));
    for (std::vector<float>& sum : taken) pool.GiveBack(std::move(sum));
    const size_t spare = SpareElements(&pool);
    EXPECT_LE(spare, 100u) << elements;
    EXPECT_GE(spare, 50u) << elements;
  }
}

// Returns one frame per count. Depending on `spec`, a frame has all elements or one in a hundred.
std::vector<std::string> FramesOf(const char* spec, uint64_t seed,
                                  absl::Span<const uint32_t> counts) {
  const compress::CodecSpec codec = *compress::ParseCodecSpec(spec);
  std::vector<std::string> frames;
  for (const uint32_t count : counts) {
    const std::vector<float> gradient = compress::HeavyTailed(count, seed++);
    std::vector<std::byte> frame;
    EXPECT_TRUE(compress::EncodeFrame(*compress::MakeCodec(codec),
                                      {.gradient = gradient, .residual = {}}, &frame)
                    .ok());
    frames.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size());
  }
  return frames;
}

// Large frames must be summed and freed early, and the means must not depend on that.
TEST(OpenBundleTest, SumsLargeFramesAsTheyComeAndSmallOnesAtTheEnd) {
  const std::vector<uint32_t> counts = {5000, 3000};
  const auto first = compress::MakeAdditiveAggregator(5000),
             second = compress::MakeAdditiveAggregator(3000);
  compress::Aggregator* const aggregators[] = {first.get(), second.get()};
  for (const char* spec : {"none", "topk:1%"}) {
    SCOPED_TRACE(spec);
    SumPool pool(100000);
    const bool large = spec == std::string("none");
    std::vector<std::vector<float>> expected = {std::vector<float>(5000), std::vector<float>(3000)};
    OpenBundle bundle(counts, aggregators, 3, /*quorum=*/0, &pool);
    for (const uint32_t rank : {0u, 2u, 1u}) {
      bundle.Admit(rank, 0, /*rate=*/0, FramesOf(spec, 10 * rank, counts), absl::UnixEpoch());
      bundle.SumPrefix();
      if (rank == 0) {
        EXPECT_EQ(bundle.held_bytes() == 0, large);
      }
    }
    for (size_t chunk = 0; chunk < counts.size(); ++chunk) {
      for (uint64_t rank = 0; rank < 3; ++rank) {
        const std::string frame = FramesOf(spec, 10 * rank, counts)[chunk];
        ASSERT_TRUE(
            compress::DecodeAddFrame(protocol::FrameBytes(frame), absl::MakeSpan(expected[chunk]))
                .ok());
      }
      for (float& x : expected[chunk]) x /= 3;
      EXPECT_EQ(bundle.MeanOf(chunk), absl::MakeConstSpan(expected[chunk]));
    }
  }
}

// The mean must be that of the scaled contributions, and one with a factor of 0 is no part of it.
TEST(OpenBundleTest, ScalesContributionsAndLeavesThemOut) {
  const std::vector<uint32_t> counts = {400};
  for (const char* const spec : {"none", "topk:10%+int4"}) {
    const auto aggregator = compress::MakeAdditiveAggregator(400);
    compress::Aggregator* const aggregators[] = {aggregator.get()};
    SumPool pool(400);
    OpenBundle bundle(counts, aggregators, 3, /*quorum=*/3, &pool);
    std::vector<std::vector<std::string>> frames;
    for (const uint64_t seed : {1, 2, 3, 4}) frames.push_back(FramesOf(spec, seed, counts));
    bundle.AdmitLate(1, 6, 60, 0.1f, frames[3]);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      bundle.Admit(rank, rank, 0.1f, frames[rank], absl::UnixEpoch());
    }
    const std::vector<HeldContribution> held = bundle.Contributions(7);
    ASSERT_EQ(held.size(), 4u);
    EXPECT_EQ(held[1].rank, 1u);
    EXPECT_EQ(held[1].origin_step, 6u);
    bundle.Scale({1.0f, 0.0f, 0.25f, 1.0f});
    EXPECT_EQ(bundle.n(), 3u);
    const std::vector<protocol::Included> included = bundle.IncludedRanks(7);
    ASSERT_EQ(included.size(), 4u);
    EXPECT_TRUE(included[1].skipped);
    EXPECT_FALSE(included[2].skipped);
    std::vector<float> expected(400);
    std::vector<float> scratch;
    compress::AddValidFrames(protocol::FrameBytes(frames[0][0]), absl::MakeSpan(expected));
    compress::AddScaledValidFrames(protocol::FrameBytes(frames[1][0]), 0.25f, &scratch,
                                   absl::MakeSpan(expected));
    compress::AddValidFrames(protocol::FrameBytes(frames[2][0]), absl::MakeSpan(expected));
    const absl::Span<const float> mean = bundle.MeanOf(0);
    for (size_t i = 0; i < 400; ++i) ASSERT_EQ(mean[i], expected[i] / 3) << spec << " " << i;
  }
}

}  // namespace
}  // namespace sluice::server
