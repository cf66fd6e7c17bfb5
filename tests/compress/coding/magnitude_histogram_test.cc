// SPDX-License-Identifier: Apache-2.0
#include "compress/coding/magnitude_histogram.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

TEST(MagnitudeHistogram, ThresholdLetsAboutTheDensityThrough) {
  const std::vector<float> values = HeavyTailed(MagnitudeHistogram::kSample, 1);
  MagnitudeHistogram magnitudes;
  magnitudes.Add(values);
  EXPECT_EQ(magnitudes.total(), values.size());
  for (const double density : {0.001, 0.01, 0.1, 0.5}) {
    const float threshold = magnitudes.ThresholdFor(density);
    const auto passing = static_cast<double>(std::count_if(
        values.begin(), values.end(), [&](float x) { return std::abs(x) >= threshold; }));
    EXPECT_NEAR(passing / static_cast<double>(values.size()), density, 0.1 * density + 2e-4);
  }
}

TEST(MagnitudeHistogram, SamplesLongSpansWithWeights) {
  const std::vector<float> values = HeavyTailed(MagnitudeHistogram::kSample * 8, 2);
  MagnitudeHistogram sampled, whole;
  sampled.Add(values);
  EXPECT_EQ(sampled.total(), values.size());
  for (size_t at = 0; at < values.size(); at += 4096) {
    whole.Add(absl::MakeConstSpan(values).subspan(at, 4096));
  }
  EXPECT_NEAR(sampled.ThresholdFor(0.01) / whole.ThresholdFor(0.01), 1, 0.15);
}

TEST(MagnitudeHistogram, CountsOneInAsManyAsItIsTold) {
  const std::vector<float> values = HeavyTailed(1 << 20, 3);
  MagnitudeHistogram whole;
  whole.Add(values, {}, 1);
  for (const size_t stride : {2, 16, 64}) {
    MagnitudeHistogram sampled;
    sampled.Add(values, {}, stride);
    EXPECT_EQ(sampled.total(), values.size());
    EXPECT_NE(sampled.ThresholdFor(0.01), whole.ThresholdFor(0.01));
    EXPECT_NEAR(sampled.ThresholdFor(0.01) / whole.ThresholdFor(0.01), 1, 0.1) << stride;
  }
}

// A span shorter than a stride must count as about its own size, not as a whole stride.
TEST(MagnitudeHistogram, CountsShortSpansForTheirSize) {
  for (const size_t size : {64, 640, 4096, 40960}) {
    MagnitudeHistogram sampled;
    sampled.Add(HeavyTailed(size, size), {}, 64);
    EXPECT_EQ(sampled.total(), size);
  }
  MagnitudeHistogram nothing;
  nothing.Add({}, {}, 64);
  EXPECT_EQ(nothing.total(), 0u);
}

// A threshold with 400 counted values above it must give the wanted density within a few percent.
TEST(MagnitudeHistogram, StrideLeavesEnoughAboveAThreshold) {
  EXPECT_EQ(MagnitudeHistogram::StrideFor(1000, 0.01), 1u);
  EXPECT_EQ(MagnitudeHistogram::StrideFor(400'000, 0.01), 10u);
  EXPECT_EQ(MagnitudeHistogram::StrideFor(400'000, 0.001), 1u);
  EXPECT_EQ(MagnitudeHistogram::StrideFor(1'000'000'000, 0.01), 64u);
}

TEST(MagnitudeHistogram, AddsTheResidual) {
  const std::vector<float> a = HeavyTailed(1000, 3), b = HeavyTailed(1000, 4);
  std::vector<float> sum(1000);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = a[i] + b[i];
  MagnitudeHistogram of_pair, of_sum;
  of_pair.Add(a, b);
  of_sum.Add(sum);
  EXPECT_EQ(of_pair.ThresholdFor(0.05), of_sum.ThresholdFor(0.05));
}

TEST(MagnitudeHistogram, NothingAndZerosGiveZero) {
  MagnitudeHistogram magnitudes;
  EXPECT_EQ(magnitudes.ThresholdFor(0.01), 0.0f);
  std::vector<float> values(1000, 0.0f);
  magnitudes.Add(values);
  EXPECT_EQ(magnitudes.ThresholdFor(0.01), 0.0f);
  values[3] = 1.0f;
  magnitudes.Clear();
  magnitudes.Add(values);
  EXPECT_EQ(magnitudes.ThresholdFor(0.01), 0.0f);
  EXPECT_GT(magnitudes.ThresholdFor(0.0001), 0.9f);
}

TEST(MagnitudeHistogram, ThresholdsHaveSixteenSignificantBits) {
  MagnitudeHistogram magnitudes;
  magnitudes.Add(HeavyTailed(9999, 7));
  for (int i = 1; i < 1000; ++i) {
    const float threshold = magnitudes.ThresholdFor(i / 1000.0);
    EXPECT_EQ(std::bit_cast<uint32_t>(threshold) & 0xFF, 0u);
  }
}

}  // namespace
}  // namespace sluice::compress
