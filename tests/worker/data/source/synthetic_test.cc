// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/source/synthetic_images.h"
#include "worker/data/source/synthetic_text.h"

namespace sluice::worker {
namespace {

TEST(SyntheticImages, ColoursLookLikeCifar) {
  const LabelledImages images = MakeSyntheticColorImages(0, 200);
  EXPECT_EQ(images.shape().bytes(), 3072u);
  EXPECT_EQ(images.classes, 10u);
  ASSERT_EQ(images.pixels.size(), 200u * 3072);
  EXPECT_EQ(std::set<uint8_t>(images.labels.begin(), images.labels.end()).size(), 10u);
  const Normalization found = MeasureNormalization(images);
  for (int channel = 0; channel < 3; ++channel) {
    EXPECT_NEAR(found.mean[static_cast<size_t>(channel)], 0.5, 0.05);
    EXPECT_GT(found.deviation[static_cast<size_t>(channel)], 0.15);
  }
}

TEST(SyntheticImages, ARowIsTheSameWhereverItBegins) {
  const LabelledImages all = MakeSyntheticColorImages(0, 8);
  const LabelledImages end = MakeSyntheticColorImages(6, 2);
  EXPECT_TRUE(std::equal(end.pixels.begin(), end.pixels.end(), all.pixels.begin() + 6 * 3072));
}

TEST(SyntheticText, LooksLikeSentences) {
  const std::string text = MakeSyntheticText(5000);
  EXPECT_EQ(text.size(), 5000u);
  EXPECT_EQ(MakeSyntheticText(1000), text.substr(0, 1000));
  EXPECT_GT(std::count(text.begin(), text.end(), ' '), 500);
  EXPECT_GT(std::count(text.begin(), text.end(), '\n'), 5);
  const std::set<char> characters(text.begin(), text.end());
  EXPECT_GT(characters.size(), 30u);
  EXPECT_LT(characters.size(), 60u);
}

}  // namespace
}  // namespace sluice::worker
