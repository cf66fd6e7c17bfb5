// SPDX-License-Identifier: Apache-2.0
#include "worker/train/best_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr BestTest kEarly{.step = 100, .accuracy = 0.5, .loss = 1.5};
constexpr BestTest kLate{.step = 200, .accuracy = 0.75, .loss = 2};

TEST(BestTestTest, ImagesGoByAccuracyAndTextByLoss) {
  job::DataSpec data;
  data.format = job::DataFormat::kIdx;
  EXPECT_EQ(MeasureOf(data), TestMeasure::kAccuracy);
  data.format = job::DataFormat::kSyntheticText;
  EXPECT_EQ(MeasureOf(data), TestMeasure::kLoss);
  EXPECT_TRUE(IsBetter(kLate, kEarly, TestMeasure::kAccuracy));
  EXPECT_FALSE(IsBetter(kLate, kEarly, TestMeasure::kLoss));
  EXPECT_FALSE(IsBetter(kEarly, kEarly, TestMeasure::kAccuracy));
  EXPECT_FALSE(IsBetter(kEarly, kEarly, TestMeasure::kLoss));
}

TEST(BestTestTest, AnyNumberIsBetterThanNone) {
  BestTest diverged = kLate;
  diverged.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(IsBetter(kEarly, diverged, TestMeasure::kLoss));
  EXPECT_FALSE(IsBetter(diverged, kEarly, TestMeasure::kLoss));
  EXPECT_FALSE(IsBetter(diverged, diverged, TestMeasure::kLoss));
}

TEST(BestTestTest, ARunThatGoesOnTakesWhatTheFileSaysIfItIsNoWorse) {
  const auto go_on = [](std::optional<BestTest> remembered, std::optional<BestTest> written) {
    return BestToGoOnFrom(remembered, written, TestMeasure::kAccuracy);
  };
  EXPECT_EQ(go_on(kEarly, kEarly), kEarly);
  EXPECT_EQ(go_on(kEarly, kLate), kLate) << "the file was written after the checkpoint";
  EXPECT_EQ(go_on(kLate, kEarly), std::nullopt) << "the file belongs to another run";
  EXPECT_EQ(go_on(kLate, std::nullopt), std::nullopt) << "the file was removed";
  EXPECT_EQ(go_on(std::nullopt, kLate), std::nullopt) << "the file belongs to an earlier run";
}

TEST(BestTestTest, TextRoundTripsAndOtherTextIsNone) {
  for (const BestTest& test :
       {BestTest{.step = 3200, .accuracy = 0.1 + 0.2, .loss = 1e-300}, kLate}) {
    EXPECT_EQ(ParseBestTest(FormatBestTest(test)), test);
  }
  for (const char* text : {"", "step", "step 1 accuracy x loss 2", "step -1 accuracy 1 loss 2",
                           "step 1 accuracy 1 loss 2 3", "STEP 1 accuracy 1 loss 2"}) {
    EXPECT_EQ(ParseBestTest(text), std::nullopt) << text;
  }
}

TEST(BestTestTest, SaysFirstWhatItIsJudgedBy) {
  EXPECT_EQ(DescribeTest(0.912, 0.2511, TestMeasure::kAccuracy),
            "test accuracy 91.20 %, test loss 0.2511");
  EXPECT_THAT(
      DescribeTest(0.572, std::log(4.0), TestMeasure::kLoss),
      AllOf(StartsWith("test loss 1.3863 (perplexity 4.00)"), HasSubstr("accuracy 57.20 %")));
}

}  // namespace
}  // namespace sluice::worker
