// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/resample.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/data/source/made_images.h"

namespace sluice::worker {
namespace {

using ::testing::Each;

ResampleOptions Whole(const PixelBox& from, uint32_t width, uint32_t height) {
  return {.from = from,
          .width = width,
          .height = height,
          .window = {.left = 0, .top = 0, .width = width, .height = height}};
}

std::vector<uint8_t> Resampled(const RgbImage& image, const ResampleOptions& options) {
  std::vector<uint8_t> planes(size_t{options.window.width} * options.window.height * 3);
  Resample(image, options, absl::MakeSpan(planes));
  return planes;
}

// Compares with the results of Pillow 9.4 for MakePixels (Image.resize with BILINEAR). Values may
// differ by one, because Pillow rounds its weights.
void ExpectNear(const std::vector<uint8_t>& found, const std::vector<int>& pillow) {
  ASSERT_EQ(found.size(), pillow.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(std::abs(found[i] - pillow[i]), 1) << i;
}

TEST(Resample, SmallerIsAsPillowHasIt) {
  ExpectNear(
      Resampled(MakePixels(7, 5), Whole({0, 0, 7, 5}, 3, 4)),
      {35,  114, 193, 48,  127, 206, 60, 139, 218, 73, 152, 163, 19, 63,  148, 81,  125, 172,
       143, 178, 117, 205, 109, 92,  13, 29,  44,  42, 124, 134, 72, 120, 106, 100, 141, 136});
}

TEST(Resample, APartIsAsPillowHasIt) {
  ExpectNear(Resampled(MakePixels(13, 9), Whole({2, 1, 9, 7}, 4, 4)),
             {122, 190, 88,  100, 139, 191, 89,  117, 159, 171, 69,  137, 176, 133, 83,  154,
              124, 165, 119, 148, 161, 113, 134, 133, 74,  126, 156, 153, 130, 174, 119, 106,
              124, 134, 171, 73,  131, 121, 115, 89,  122, 141, 148, 107, 100, 145, 136, 123});
}

TEST(Resample, LargerIsAsPillowHasIt) {
  const std::vector<uint8_t> planes = Resampled(MakePixels(7, 5), Whole({0, 0, 7, 5}, 10, 9));
  ASSERT_EQ(planes.size(), 270u);
  // The first and the last row of red.
  ExpectNear({planes.begin(), planes.begin() + 10}, {0, 20, 46, 72, 98, 124, 150, 176, 202, 222});
  ExpectNear({planes.begin() + 80, planes.begin() + 90},
             {44, 64, 90, 116, 142, 168, 194, 220, 130, 10});
  // The last row of blue.
  ExpectNear({planes.begin() + 260, planes.end()}, {7, 71, 152, 233, 148, 140, 208, 110, 127, 191});
}

TEST(Resample, TheSameSizeIsTheSameImage) {
  const RgbImage image = MakePixels(6, 4);
  const std::vector<uint8_t> planes = Resampled(image, Whole({0, 0, 6, 4}, 6, 4));
  for (uint32_t c = 0; c < 3; ++c) {
    for (uint32_t i = 0; i < 24; ++i) EXPECT_EQ(planes[c * 24 + i], image.pixels[i * 3 + c]);
  }
}

TEST(Resample, AnEvenColourStaysAsItIs) {
  const RgbImage image = MakeFlat(31, 17, 255, 255, 255);
  EXPECT_THAT(Resampled(image, Whole({0, 0, 31, 17}, 7, 29)), Each(255));
  EXPECT_THAT(Resampled(MakeFlat(1, 1, 9, 9, 9), Whole({0, 0, 1, 1}, 8, 8)), Each(9));
}

TEST(Resample, AWindowIsAPartOfTheWhole) {
  const RgbImage image = MakePixels(20, 14);
  const std::vector<uint8_t> whole = Resampled(image, Whole({0, 0, 20, 14}, 9, 8));
  ResampleOptions options = Whole({0, 0, 20, 14}, 9, 8);
  options.window = {.left = 2, .top = 3, .width = 4, .height = 5};
  for (const bool flip : {false, true}) {
    options.flip = flip;
    const std::vector<uint8_t> part = Resampled(image, options);
    for (uint32_t c = 0; c < 3; ++c) {
      for (uint32_t y = 0; y < 5; ++y) {
        for (uint32_t x = 0; x < 4; ++x) {
          const uint32_t from = flip ? 3 - x : x;
          EXPECT_EQ(part[(c * 5 + y) * 4 + x], whole[(c * 8 + y + 3) * 9 + from + 2]);
        }
      }
    }
  }
}

TEST(Resample, TestsSeeTheMiddle) {
  const ResampleOptions wide = MiddleOf({500, 375}, 224);
  EXPECT_EQ(wide.width, 341u);
  EXPECT_EQ(wide.height, 256u);
  EXPECT_EQ(wide.window.left, 58u);
  EXPECT_EQ(wide.window.top, 16u);
  const ResampleOptions thin = MiddleOf({1, 10000}, 32);
  EXPECT_EQ(thin.width, 37u);
  EXPECT_EQ(thin.height, 370000u);
  EXPECT_THAT(Resampled(MakeFlat(1, 10000, 3, 3, 3), thin), Each(3));
}

}  // namespace
}  // namespace sluice::worker
