// SPDX-License-Identifier: Apache-2.0
// Compares the kernels of compress/simd/values.h with plain loops, at every length, on every
// instruction set.

#include <algorithm>
#include <cmath>

#include "base/float_bits.h"
#include "compress/simd/targets.h"
#include "compress/simd/values.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

constexpr float kFloor = 0.0009765625f, kStep = 0.0030517578125f;

class SimdValues : public ::testing::TestWithParam<std::string> {
 protected:
  SimdValues() { ForceSimdTarget(GetParam()); }
  ~SimdValues() override { ForceSimdTarget(""); }
};

// Returns lengths below and above a tile of codes, including lengths with an incomplete vector.
std::vector<size_t> Lengths() {
  std::vector<size_t> lengths(140);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = i;
  for (const size_t length : {255, 256, 257, 300, 511, 512, 513, 1000}) lengths.push_back(length);
  return lengths;
}

// Returns values that a threshold of kFloor would keep: no magnitude is smaller, except by
// rounding.
std::vector<float> Kept(size_t count) {
  std::vector<float> values = HeavyTailed(count, count);
  for (float& value : values) value = std::copysign(std::abs(value) + kFloor * 0.999f, value);
  return values;
}

uint8_t PlainNibble(float value, float floor, float step) {
  const int sign = value < 0 ? 8 : 0;
  if (!(step > 0)) return static_cast<uint8_t>(sign);
  const float above = std::max(std::abs(value) - floor, 0.0f);
  const int half_steps = static_cast<int>(std::min(above / step * 2, 14.0f));
  return static_cast<uint8_t>(((half_steps + 1) / 2) | sign);
}

TEST_P(SimdValues, NibblesThereAndBack) {
  for (const size_t count : Lengths()) {
    for (const float step : {kStep, 0.0f, 0x1p-149f}) {
      const std::vector<float> values = Kept(count);
      std::vector<float> left = values, decoded(count);
      std::vector<uint8_t> packed((count + 1) / 2, 0xFF);
      ToNibbles(kFloor, step, left.data(), packed.data(), count);
      FromNibbles(kFloor, step, packed.data(), decoded.data(), count);
      for (size_t i = 0; i < count; ++i) {
        const uint8_t nibble = PlainNibble(values[i], kFloor, step);
        const float level = kFloor + static_cast<float>(nibble & 7) * step;
        const float plain = nibble < 8 ? level : -level;
        ASSERT_EQ((packed[i / 2] >> (i % 2 * 4)) & 15, nibble) << i << " of " << count;
        ASSERT_EQ(decoded[i], plain) << i << " of " << count;
        ASSERT_EQ(left[i], values[i] - plain) << i << " of " << count;
      }
      if (count % 2 == 1) {
        EXPECT_EQ(packed.back() >> 4, 0) << count;
      }
    }
  }
}

TEST_P(SimdValues, BytesThereAndBack) {
  for (const size_t count : Lengths()) {
    for (const float step : {0x1.8p-12f, 0.0f}) {
      const std::vector<float> values = HeavyTailed(count, count);
      std::vector<float> left = values, decoded(count);
      std::vector<int8_t> codes(count, 99);
      ToBytes(step, left.data(), codes.data(), count);
      FromBytes(step, codes.data(), decoded.data(), count);
      for (size_t i = 0; i < count; ++i) {
        const float scaled = step > 0 ? std::clamp(values[i] / step, -127.0f, 127.0f) : 0.0f;
        const float plain = std::nearbyint(scaled) * step + 0.0f;
        ASSERT_EQ(static_cast<float>(codes[i]), std::nearbyint(scaled)) << i << " of " << count;
        ASSERT_EQ(decoded[i], plain) << i << " of " << count;
        ASSERT_EQ(left[i], values[i] - plain) << i << " of " << count;
      }
    }
  }
}

TEST_P(SimdValues, SignBits) {
  for (const size_t count : Lengths()) {
    const std::vector<float> values = HeavyTailed(count, count);
    std::vector<float> left = values;
    std::vector<uint8_t> bits((count + 7) / 8, 0xFF);
    ToSignBits(kStep, left.data(), bits.data(), count);
    for (size_t i = 0; i < 8 * bits.size(); ++i) {
      const bool negative = i < count && values[i] < 0;
      ASSERT_EQ(bits[i / 8] >> (i % 8) & 1, negative ? 1 : 0) << i << " of " << count;
      if (i < count) {
        ASSERT_EQ(left[i], values[i] - (negative ? -kStep : kStep)) << i;
      }
    }
  }
}

TEST_P(SimdValues, MagnitudesAreAddedInEightLanes) {
  for (const size_t count : Lengths()) {
    std::vector<float> values = HeavyTailed(count, count);
    if (count > 2) values[1] = values[2] = -0x1.fffffep127f;
    double lanes[8] = {}, sum = 0;
    for (size_t i = 0; i < count; ++i) lanes[i % 8] += std::abs(double{values[i]});
    for (const double lane : lanes) sum += lane;
    EXPECT_EQ(SumOfMagnitudes(values.data(), count), sum) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SimdValues, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace sluice::compress
