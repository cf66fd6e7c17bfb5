// SPDX-License-Identifier: Apache-2.0
// Tests frames that return to their sender's residual.
#include <gtest/gtest.h>

#include <vector>

#include "compress/compressor.h"
#include "compress/frame.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

std::vector<ChunkConfig> OneReturnedChunk(const char* spec) {
  return {{.count = 700, .spec = *ParseCodecSpec(spec)}};
}

TEST(ReturnFrame, TakesBackARefusedFrame) {
  Compressor compressor(OneReturnedChunk("ternary:0.5"), {});
  const std::vector<float> gradient = HeavyTailed(700, 1);
  std::vector<std::byte> frame;
  ASSERT_TRUE(compressor.Encode(0, 0, gradient, &frame).ok());
  EXPECT_LE(frame.size(), compressor.MaxFrameSize(0));
  ASSERT_TRUE(compressor.ReturnFrame(0, frame).ok());
  for (size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_NEAR(compressor.residual(0)[i], gradient[i], 1e-8) << i;
  }
  frame.pop_back();
  EXPECT_FALSE(compressor.ReturnFrame(0, frame).ok());
  EXPECT_FALSE(compressor.ReturnFrame(1, frame).ok());
}

TEST(ReturnFrame, TakesBackAShareOfAFrame) {
  for (const char* spec : {"topk:20%", "int8", "none", "topk:20%/dgc:0.9"}) {
    Compressor compressor(OneReturnedChunk(spec), {});
    std::vector<std::byte> frame;
    ASSERT_TRUE(compressor.Encode(0, 0, HeavyTailed(700, 1), &frame).ok());
    std::vector<float> before(compressor.residual(0).begin(), compressor.residual(0).end());
    before.resize(700);
    std::vector<float> sent(700);
    ASSERT_TRUE(DecodeAddFrame(frame, absl::MakeSpan(sent)).ok());
    ASSERT_TRUE(compressor.ReturnFrame(0, frame, 0.25f).ok()) << spec;
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_NEAR(compressor.residual(0)[i], before[i] + 0.25f * sent[i], 1e-6) << spec << i;
    }
    frame.pop_back();
    EXPECT_FALSE(compressor.ReturnFrame(0, frame, 0.25f).ok());
  }
  // Without feedback, the codec keeps nothing.
  Compressor compressor(OneReturnedChunk("topk:20%/noef"), {});
  std::vector<std::byte> frame;
  ASSERT_TRUE(compressor.Encode(0, 0, HeavyTailed(700, 1), &frame).ok());
  EXPECT_TRUE(compressor.ReturnFrame(0, frame, 0.25f).ok());
  EXPECT_TRUE(compressor.residual(0).empty());
}

}  // namespace
}  // namespace sluice::compress
