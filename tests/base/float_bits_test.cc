// SPDX-License-Identifier: Apache-2.0
#include "base/float_bits.h"

#include <cmath>
#include <limits>

#include "base/random.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

// Computes the value from the definition of the format, in double.
double HalfValue(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(FloatBits, EveryFiniteHalfReadsAsDefinedAndWritesBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7C00) == 0x7C00) continue;
    const float value = FromHalf(static_cast<uint16_t>(half));
    EXPECT_EQ(value, HalfValue(static_cast<uint16_t>(half)));
    EXPECT_EQ(ToHalf(value), half);
  }
}

TEST(FloatBits, HalvesRoundToNearestEvenBetweenNeighbours) {
  for (uint32_t half = 0; half < 0x7BFF; ++half) {
    const double low = HalfValue(static_cast<uint16_t>(half));
    const double high = HalfValue(static_cast<uint16_t>(half + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // This is exact.
    const uint32_t even = half % 2 == 0 ? half : half + 1;
    EXPECT_EQ(ToHalf(middle), even) << half;
    EXPECT_EQ(ToHalf(std::nextafter(middle, 0.0f)), half);
    EXPECT_EQ(ToHalf(std::nextafter(middle, 1e9f)), half + 1);
    EXPECT_EQ(ToHalf(-middle), even | 0x8000);
  }
}

TEST(FloatBits, HalvesSaturate) {
  EXPECT_EQ(ToHalf(65504.0f), 0x7BFF);
  EXPECT_EQ(ToHalf(65520.0f), 0x7BFF);
  EXPECT_EQ(ToHalf(1e30f), 0x7BFF);
  EXPECT_EQ(ToHalf(-std::numeric_limits<float>::max()), 0xFBFF);
}

TEST(FloatBits, BfloatsRoundToNearestEvenAndSaturate) {
  for (uint32_t bfloat = 0; bfloat < 0x7F7F; ++bfloat) {
    const float middle = std::bit_cast<float>((bfloat << 16) | 0x8000);
    EXPECT_EQ(FromBfloat(ToBfloat(middle)), FromBfloat(static_cast<uint16_t>(bfloat + bfloat % 2)));
    EXPECT_EQ(ToBfloat(std::bit_cast<float>((bfloat << 16) | 0x7FFF)), bfloat);
    EXPECT_EQ(ToBfloat(std::bit_cast<float>((bfloat << 16) | 0x8001)), bfloat + 1);
  }
  EXPECT_EQ(ToBfloat(std::numeric_limits<float>::max()), 0x7F7F);
  EXPECT_EQ(ToBfloat(-std::numeric_limits<float>::max()), 0xFF7F);
}

TEST(FloatBits, ShortFloatsHaveSixteenSignificantBits) {
  CounterRandom random(1);
  for (int i = 0; i < 10000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random.Below(kInfinityBits)));
    const float nearest = ToShortFloat(x);
    const float up = ToShortFloatUp(x);
    EXPECT_EQ(std::bit_cast<uint32_t>(nearest) & 0xFF, 0u);
    EXPECT_EQ(std::bit_cast<uint32_t>(up) & 0xFF, 0u);
    EXPECT_GE(up, std::min(x, std::bit_cast<float>(kLargestShortBits)));
    EXPECT_NEAR(nearest / x, 1, x > 1e-37 ? 1.0 / 65536 : 1);
  }
  EXPECT_TRUE(IsFinite(ToShortFloat(std::numeric_limits<float>::max())));
  EXPECT_TRUE(IsFinite(ToShortFloatUp(std::numeric_limits<float>::max())));
}

}  // namespace
}  // namespace sluice
