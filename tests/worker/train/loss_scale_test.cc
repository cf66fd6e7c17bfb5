// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loss_scale.h"

#include <limits>

#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

TEST(LossScaleTest, IsHalvedByEachOverflowDownToOne) {
  LossScale scale;
  EXPECT_EQ(scale.value(), 65536);
  scale.Update(/*overflowed=*/true);
  EXPECT_EQ(scale.value(), 32768);
  EXPECT_FALSE(scale.at_least());
  for (int i = 0; i < 15; ++i) scale.Update(true);
  EXPECT_EQ(scale.value(), 1);
  EXPECT_TRUE(scale.at_least());
  scale.Update(true);
  EXPECT_EQ(scale.value(), 1);
}

TEST(LossScaleTest, DoublesAfterGoodStepsInARow) {
  LossScale scale;
  const auto go_well = [&](uint32_t steps) {
    for (uint32_t i = 0; i < steps; ++i) scale.Update(false);
  };
  go_well(1999);
  EXPECT_EQ(scale.value(), 65536);
  scale.Update(true);
  go_well(1999);
  EXPECT_EQ(scale.value(), 32768) << "the good steps are not in a row";
  go_well(1);
  EXPECT_EQ(scale.value(), 65536);
  go_well(2000);
  EXPECT_EQ(scale.value(), 131072);
  go_well(2000 * 200);
  EXPECT_GT(1 / static_cast<float>(scale.value()), std::numeric_limits<float>::min());
}

TEST(LossScaleTest, GoesOnFromWhatWasSaved) {
  LossScale scale;
  EXPECT_TRUE(scale.Restore(4, 1999));
  scale.Update(false);
  EXPECT_EQ(scale.value(), 8);
  EXPECT_EQ(scale.good_steps(), 0u);
  for (const double value : {0.0, -2.0, 0.5, 3.0, 0x1p121, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(scale.Restore(value, 0)) << value;
  }
  EXPECT_FALSE(scale.Restore(4, -1));
  EXPECT_FALSE(scale.Restore(4, 2000));
  EXPECT_EQ(scale.value(), 8);
}

}  // namespace
}  // namespace sluice::worker
