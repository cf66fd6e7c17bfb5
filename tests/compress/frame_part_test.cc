// SPDX-License-Identifier: Apache-2.0
#include "compress/frame_part.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

// Positions are not decoded, so the values come from about the same place in the chunk.
TEST(FramePart, EstimatesSparseNormsFromAFewValues) {
  constexpr uint32_t kCount = 65'536;
  constexpr uint32_t kSize = 4096;
  const std::vector<float> gradient = HeavyTailed(kCount, 3);
  for (const char* const spec : {"topk:1%+int4", "topk:10%", "topk:10%+int8", "threshold:0.02"}) {
    std::vector<std::byte> frame;
    ASSERT_TRUE(EncodeFrame(*CodecFor(spec), {.gradient = gradient}, &frame).ok());
    EXPECT_FALSE(DecodeInParts(frame));
    std::vector<float> scratch;
    const double whole = SquaresIn(WholeChunk(kCount), frame, &scratch);
    ASSERT_GT(whole, 0) << spec;
    double sum = 0;
    for (uint32_t first = 0; first < kCount; first += kSize) {
      const double squares = SquaresIn({kCount, first, kSize}, frame, &scratch);
      EXPECT_NEAR(std::sqrt(squares * kCount / kSize / whole), 1, 0.5) << spec << " at " << first;
      sum += squares;
    }
    EXPECT_NEAR(sum, whole, 0.1 * whole) << spec;
    EXPECT_TRUE(scratch.empty()) << "a sparse frame was decoded";
  }
}

}  // namespace
}  // namespace sluice::compress
