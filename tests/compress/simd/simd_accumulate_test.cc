// SPDX-License-Identifier: Apache-2.0
// Compares the kernels of compress/simd/accumulate.h with plain loops, on every instruction set.

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/float_bits.h"
#include "compress/simd/accumulate.h"
#include "compress/simd/targets.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

class SimdAccumulate : public ::testing::TestWithParam<std::string> {
 protected:
  SimdAccumulate() { ForceSimdTarget(GetParam()); }
  ~SimdAccumulate() override { ForceSimdTarget(""); }
};

TEST_P(SimdAccumulate, LargestMagnitudeAtEveryLength) {
  for (size_t count = 0; count <= 200; ++count) {
    const std::vector<float> a = HeavyTailed(count, count), b = HeavyTailed(count, count + 1);
    uint32_t alone = 0, both = 0;
    for (size_t i = 0; i < count; ++i) {
      alone = std::max(alone, MagnitudeBits(a[i]));
      both = std::max(both, MagnitudeBits(a[i] + b[i]));
    }
    EXPECT_EQ(LargestMagnitudeBits(a.data(), nullptr, count), alone) << count;
    EXPECT_EQ(LargestMagnitudeBits(a.data(), b.data(), count), both) << count;
  }
}

TEST_P(SimdAccumulate, LargestMagnitudeFindsWhatIsNotFiniteAnywhere) {
  for (size_t at = 0; at < 100; ++at) {
    std::vector<float> a = HeavyTailed(100, 1);
    a[at] = at % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                        : -std::numeric_limits<float>::infinity();
    EXPECT_GE(LargestMagnitudeBits(a.data(), nullptr, 100), kInfinityBits) << at;
  }
}

TEST_P(SimdAccumulate, AddScaledAtEveryLength) {
  for (size_t count = 0; count <= 200; ++count) {
    const std::vector<float> x = HeavyTailed(count, count);
    std::vector<float> sum = HeavyTailed(count, count + 1), wanted = sum;
    for (size_t i = 0; i < count; ++i) {
      const float scaled = -0.37f * x[i];
      wanted[i] += scaled;
    }
    const std::vector<float> before = sum;
    AddScaled(-0.37f, x.data(), sum.data(), count);
    EXPECT_EQ(sum, wanted) << count;
    for (const size_t shift : {0, 1, 3}) {
      std::vector<std::byte> bytes(shift + count * sizeof(float));
      std::copy_n(reinterpret_cast<const std::byte*>(x.data()), count * sizeof(float),
                  bytes.data() + shift);
      sum = before;
      AddScaledBytes(-0.37f, bytes.data() + shift, sum.data(), count);
      EXPECT_EQ(sum, wanted) << count;
      sum = before;
      AddBytes(bytes.data() + shift, sum.data(), count);
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(sum[i], before[i] + x[i]) << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SimdAccumulate, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace sluice::compress
