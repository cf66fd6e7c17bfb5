// SPDX-License-Identifier: Apache-2.0
// Tests that the sum of many frames has the same bits whether an aggregator adds several frames at
// once or one after another.

#include "compress/aggregator.h"

#include <cstring>

#include "compress/simd/targets.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

class Additive : public ::testing::TestWithParam<std::string> {
 protected:
  Additive() { ForceSimdTarget(GetParam()); }
  ~Additive() override { ForceSimdTarget(""); }
};

std::vector<std::vector<std::byte>> FramesOf(const std::string& spec, size_t count,
                                             size_t senders) {
  std::vector<std::vector<std::byte>> frames(senders);
  for (size_t sender = 0; sender < senders; ++sender) {
    std::vector<float> gradient = HeavyTailed(count, 100 * count + sender);
    // Some blocks contain only zeros, so they add nothing.
    for (size_t i = 0; i < count; ++i) {
      if ((i / 256 + sender) % 5 == 0) gradient[i] = 0;
    }
    EXPECT_TRUE(EncodeFrame(*CodecFor(spec), {.gradient = gradient}, &frames[sender]).ok());
  }
  return frames;
}

std::vector<float> OneByOne(const std::vector<std::vector<std::byte>>& frames, size_t count) {
  std::vector<float> sum(count, 0.0f);
  for (const std::vector<std::byte>& frame : frames) {
    EXPECT_TRUE(DecodeAddFrame(frame, absl::MakeSpan(sum)).ok());
  }
  return sum;
}

void ExpectSameBits(const std::vector<float>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_EQ(std::memcmp(found.data(), wanted.data(), found.size() * sizeof(float)), 0);
}

TEST_P(Additive, AddsManyAsOneByOne) {
  for (const std::string spec : {"int8", "int4", "int2", "int8:sr", "fp16", "topk:10%+int4"}) {
    for (const size_t count : {1, 255, 256, 257, 2000}) {
      for (const size_t senders : {1, 2, 3, 4, 7, 8, 9, 13, 16, 17, 35}) {
        const auto frames = FramesOf(spec, count, senders);
        const std::unique_ptr<Aggregator> aggregator = MakeAdditiveAggregator(count);
        std::vector<SenderFrame> list;
        for (size_t i = 0; i < senders; ++i) {
          list.push_back({.sender = static_cast<uint32_t>(i), .frame = frames[i]});
        }
        std::vector<float> sum(count, 0.0f);
        // The frames are added in two calls, because they do not arrive all at once in a job.
        aggregator->Add(absl::MakeConstSpan(list).first(senders / 3), absl::MakeSpan(sum));
        aggregator->Add(absl::MakeConstSpan(list).subspan(senders / 3), absl::MakeSpan(sum));
        std::vector<float> wanted = OneByOne(frames, count);
        SCOPED_TRACE(spec + " of " + std::to_string(count) + " by " + std::to_string(senders));
        ExpectSameBits(sum, wanted);
        aggregator->Close(static_cast<uint32_t>(senders), absl::MakeSpan(sum));
        for (float& x : wanted) x /= static_cast<float>(senders);
        ExpectSameBits(sum, wanted);
      }
    }
  }
}

TEST_P(Additive, AddsMixedFormatsInTheirOrder) {
  constexpr size_t kCount = 700;
  std::vector<std::vector<std::byte>> frames;
  std::vector<SenderFrame> list;
  for (const std::string spec : {"int8", "int8", "int4", "fp16", "int4", "int4", "none", "int8"}) {
    frames.push_back(FramesOf(spec, kCount, frames.size() + 1).back());
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    list.push_back({.sender = static_cast<uint32_t>(i), .frame = frames[i]});
  }
  std::vector<float> sum(kCount, 0.0f);
  MakeAdditiveAggregator(kCount)->Add(list, absl::MakeSpan(sum));
  ExpectSameBits(sum, OneByOne(frames, kCount));
}

INSTANTIATE_TEST_SUITE_P(Targets, Additive, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace sluice::compress
