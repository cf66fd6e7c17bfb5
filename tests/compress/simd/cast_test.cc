// SPDX-License-Identifier: Apache-2.0
// Tests the casts: compares fp8 with its definition, and tests random rounding.

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/float_bits.h"
#include "compress/codecs/fp8.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

std::vector<float> EncodeDecodeCast(const std::string& spec, const std::vector<float>& values,
                                    uint64_t key = 1) {
  std::vector<std::byte> frame;
  EXPECT_TRUE(EncodeFrame(*CodecFor(spec), {.gradient = values, .own_key = key}, &frame).ok());
  return Decode(frame, values.size());
}

// Returns all non-negative values of a format in ascending order.
std::vector<double> ValuesOf(int mantissa, int bias, double largest) {
  std::vector<double> values;
  for (int exponent = 0; exponent < 32; ++exponent) {
    for (int m = 0; m < 1 << mantissa; ++m) {
      const double fraction = std::ldexp(m, -mantissa) + (exponent > 0 ? 1 : 0);
      const double value = std::ldexp(fraction, std::max(exponent, 1) - bias);
      if (value <= largest) values.push_back(value);
    }
  }
  return values;
}

TEST(Cast, Fp8TakesTheNearestOfItsValues) {
  struct Case {
    const char* spec;
    int mantissa, bias;
    double largest;
  };
  for (const Case& c : {Case{"fp8", 3, 7, 448}, Case{"fp8:e5m2", 2, 15, 57344}}) {
    const std::vector<double> all = ValuesOf(c.mantissa, c.bias, c.largest);
    ASSERT_EQ(all.size(), c.mantissa == 3 ? 127u : 124u);
    std::vector<float> values = HeavyTailed(256, 3, 1.0f);
    for (size_t i = 0; i < 100; ++i) values[i] *= 1e-3f;
    float largest = 0;
    for (const float x : values) largest = std::max(largest, std::abs(x));
    const double scale = FromBfloat(static_cast<uint16_t>(
        (std::bit_cast<uint32_t>(largest / static_cast<float>(c.largest)) + 0xFFFF) >> 16));
    const std::vector<float> decoded = EncodeDecodeCast(c.spec, values);
    for (size_t i = 0; i < values.size(); ++i) {
      // 1 / scale is rounded, so the rounded quotient may be nearest to the other neighbour.
      // Therefore errors are compared, not values.
      double nearest = 1e300;
      for (const double value : all) {
        nearest = std::min(nearest, std::abs(value * scale - std::abs(double{values[i]})));
      }
      EXPECT_LE(std::abs(double{values[i]} - decoded[i]), nearest + 1e-6 * std::abs(values[i]))
          << i;
      EXPECT_GE(std::abs(double{values[i]} - decoded[i]), nearest - 1e-6 * std::abs(values[i]))
          << i;
    }
  }
}

TEST(Cast, RoundsAtRandomToTheMean) {
  for (const char* spec : {"fp16:sr", "bf16:sr", "fp8:sr", "fp8:e5m2,sr"}) {
    for (const float x : {0.30005f, -1.00321f, 3e-6f}) {
      std::vector<float> values(40, 2.0f);
      values[17] = x;
      const int draws = 4000;
      double sum = 0;
      std::vector<float> levels;
      for (int draw = 0; draw < draws; ++draw) {
        const float decoded = EncodeDecodeCast(spec, values, draw)[17];
        sum += decoded;
        if (std::find(levels.begin(), levels.end(), decoded) == levels.end()) {
          levels.push_back(decoded);
        }
      }
      ASSERT_LE(levels.size(), 2u) << spec << " " << x;
      const double step = levels.size() < 2 ? 0 : std::abs(double{levels[0]} - levels[1]);
      EXPECT_LE(std::abs(sum / draws - x), 4 * step / 2 / std::sqrt(draws) + 1e-7 * std::abs(x))
          << spec << " " << x;
      // There are two levels, unless one is so improbable that this many draws may miss it.
      EXPECT_TRUE(levels.size() == 2 || std::abs(levels[0] - x) < 1e-3 * std::abs(x)) << spec;
    }
  }
}

TEST(Cast, SaturatesAndKeepsTheRest) {
  EXPECT_EQ(EncodeDecodeCast("fp16:sr", {1e6f, -1e6f, 65504}),
            (std::vector<float>{65504, -65504, 65504}));
  const float max = std::numeric_limits<float>::max();
  for (const char* spec : {"bf16:sr", "fp8", "fp8:sr", "fp8:e5m2", "fp8:e5m2,sr"}) {
    for (const float x : EncodeDecodeCast(spec, {max, -max, 1, 1e-40f, 0})) {
      EXPECT_TRUE(std::isfinite(x)) << spec;
    }
  }
}

TEST(Cast, Fp8PayloadsThatLie) {
  std::vector<std::byte> frame;
  const std::vector<float> values = HeavyTailed(300, 5);
  ASSERT_TRUE(EncodeFrame(*CodecFor("fp8"), {.gradient = values}, &frame).ok());
  const std::vector<std::byte> payload(frame.begin() + kFrameHeaderSize, frame.end());
  ASSERT_TRUE(ValidateFp8(payload, 300).ok());
  const auto with = [&](size_t at, uint8_t value) {
    std::vector<std::byte> changed = payload;
    changed[at] = std::byte{value};
    return ValidateFp8(changed, 300).ok();
  };
  EXPECT_FALSE(with(0, 2));
  EXPECT_FALSE(with(2, 0xFF));  // The scale is negative and not finite.
  EXPECT_FALSE(with(5, 0x7F));  // The code is NaN.
  EXPECT_FALSE(with(5, 0xFF));
  EXPECT_TRUE(with(5, 0x7E));
  EXPECT_FALSE(ValidateFp8(payload, 299).ok());
  EXPECT_FALSE(ValidateFp8({}, 0).ok());
}

}  // namespace
}  // namespace sluice::compress
