#include "server/control/octave_histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/control/small_tensors.h"

namespace sluice {
namespace {

TEST(OctaveHistogram, IsExactAtPowersOfTwo) {
  const std::vector<float> values = Values(1, 5000, 1e-3);
  const OctaveHistogram histogram = HistogramOf(values);
  for (int exponent = -20; exponent < 0; ++exponent) {
    const double threshold = std::ldexp(1.0, exponent);
    uint64_t reach = 0;
    double below = 0;
    for (const float value : values) {
      if (std::abs(value) >= threshold) {
        ++reach;
      } else {
        below += double{value} * value;
      }
    }
    EXPECT_EQ(histogram.CountFrom(threshold), static_cast<double>(reach));
    EXPECT_NEAR(histogram.EnergyBelow(threshold), below, 1e-12);
  }
}

TEST(OctaveHistogram, IsNearInBetween) {
  const std::vector<float> values = Values(2, 50000, 1);
  const OctaveHistogram histogram = HistogramOf(values);
  for (double threshold = 0.1; threshold < 10; threshold *= 1.17) {
    double reach = 0;
    for (const float value : values) reach += std::abs(value) >= threshold ? 1 : 0;
    EXPECT_NEAR(histogram.CountFrom(threshold) / reach, 1, 0.15) << threshold;
  }
}

TEST(OctaveHistogram, MergedIsThatOfAll) {
  const std::vector<float> a = Values(1, 1000, 1);
  const std::vector<float> b = Values(2, 3000, 0.01);
  OctaveHistogram merged = HistogramOf(a);
  merged.Merge(HistogramOf(b));
  OctaveHistogram both = HistogramOf(a);
  both.Add(b);
  EXPECT_EQ(merged.count(), 4000u);
  EXPECT_EQ(merged.CountFrom(0.3), both.CountFrom(0.3));
  EXPECT_NEAR(merged.energy(), both.energy(), 1e-9);
}

TEST(OctaveHistogram, TakesWhateverFloatsThereAre) {
  OctaveHistogram histogram;
  histogram.Add(std::vector<float>{
      0, -0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
      std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()});
  EXPECT_EQ(histogram.count(), 6u);
  EXPECT_EQ(histogram.CountFrom(1), 3);
  EXPECT_EQ(histogram.CountFrom(std::ldexp(1.0, OctaveHistogram::kLeast)), 4);
  EXPECT_TRUE(std::isfinite(histogram.energy()));
  EXPECT_EQ(OctaveHistogram().energy(), 0);
}

}  // namespace
}  // namespace sluice
