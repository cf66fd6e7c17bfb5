// SPDX-License-Identifier: Apache-2.0
#include "worker/data/source/augmentation.h"

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

using ::testing::ElementsAre;

// The first channel has 1 2 3 / 4 5 6, and the second 11 to 16.
const std::vector<uint8_t> kImage = {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};
constexpr PlaneShape kShape = {.channels = 2, .height = 2, .width = 3};

// Returns the augmented image as text, for comparisons.
std::string Augmented(const Augmentation& augmentation, EpochKey epoch, uint32_t sample) {
  std::vector<uint8_t> result(kImage.size(), 99);
  CropAndFlip(augmentation, kShape, kImage, SampleRandom(epoch, sample), absl::MakeSpan(result));
  return {result.begin(), result.end()};
}

// Returns the shifted image, computed in a simple way.
std::string Moved(int down, int right, bool flip) {
  std::string result;
  for (int c = 0; c < 2; ++c) {
    for (int row = 0; row < 2; ++row) {
      for (int column = 0; column < 3; ++column) {
        const int y = row + down;
        const int x = (flip ? 2 - column : column) + right;
        const bool inside = y >= 0 && y < 2 && x >= 0 && x < 3;
        result.push_back(inside ? static_cast<char>(kImage[static_cast<size_t>(c * 6 + y * 3 + x)])
                                : '\0');
      }
    }
  }
  return result;
}

TEST(Augmentation, EveryCropAndFlipComesAndNothingElse) {
  std::set<std::string> possible;
  for (int down = -2; down <= 2; ++down) {
    for (int right = -2; right <= 2; ++right) {
      for (const bool flip : {false, true}) possible.insert(Moved(down, right, flip));
    }
  }
  std::set<std::string> seen;
  for (uint32_t sample = 0; sample < 2000; ++sample) {
    seen.insert(Augmented({.crop_padding = 2, .flip = true}, {.seed = 1, .epoch = 4}, sample));
  }
  EXPECT_EQ(seen, possible);
}

TEST(Augmentation, PaddingMayBeLargerThanTheImage) {
  std::set<std::string> seen;
  for (uint32_t sample = 0; sample < 2000; ++sample) {
    seen.insert(Augmented({.crop_padding = 9}, {}, sample));
  }
  EXPECT_EQ(seen.count(std::string(kImage.size(), '\0')), 1u);
  EXPECT_EQ(seen.count(Moved(0, 0, false)), 1u);
}

TEST(Augmentation, WithoutAnyTheImageStays) {
  EXPECT_EQ(Augmented({}, {.seed = 3, .epoch = 1}, 5), Moved(0, 0, false));
}

TEST(Augmentation, IsAFunctionOfSeedEpochAndSample) {
  const auto draws = [](uint64_t seed, uint64_t epoch) {
    std::vector<std::string> all;
    for (uint32_t sample = 0; sample < 20; ++sample) {
      all.push_back(Augmented({.crop_padding = 2, .flip = true}, {seed, epoch}, sample));
    }
    return all;
  };
  EXPECT_EQ(draws(1, 2), draws(1, 2));
  EXPECT_NE(draws(1, 2), draws(1, 3));
  EXPECT_NE(draws(1, 2), draws(2, 2));
}

TEST(RandomCrop, IsWithinTheImageAndItsLimits) {
  double least = 1;
  double most = 0;
  for (uint32_t sample = 0; sample < 2000; ++sample) {
    CounterRandom random = SampleRandom({.seed = 5}, sample);
    const PixelBox box = RandomCrop(400, 300, 0.08, &random);
    ASSERT_GT(box.width, 0u);
    ASSERT_GT(box.height, 0u);
    ASSERT_LE(box.left + box.width, 400u);
    ASSERT_LE(box.top + box.height, 300u);
    const double ratio = static_cast<double>(box.width) / box.height;
    EXPECT_GT(ratio, 0.73);
    EXPECT_LT(ratio, 1.37);
    const double share = box.width * box.height / 120000.0;
    least = std::min(least, share);
    most = std::max(most, share);
  }
  EXPECT_NEAR(least, 0.08, 0.01);
  EXPECT_GT(most, 0.9);
}

TEST(RandomCrop, OfThinImagesIsTheMiddle) {
  CounterRandom random = SampleRandom({}, 1);
  const PixelBox box = RandomCrop(1, 100, 1, &random);
  EXPECT_EQ(box.width, 1u);
  EXPECT_EQ(box.height, 1u);
  EXPECT_EQ(box.top, 49u);
  const PixelBox wide = RandomCrop(100, 6, 1, &random);
  EXPECT_EQ(wide.width, 8u);
  EXPECT_EQ(wide.height, 6u);
  EXPECT_EQ(wide.left, 46u);
}

}  // namespace
}  // namespace sluice::worker
