// SPDX-License-Identifier: Apache-2.0
#include "base/power.h"

#include <cmath>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(PowerOf, IsThePowerWithinItsBound) {
  for (const double base : {0.5, 0.9, 0.99, 0.999, 0.99999, 1.0, 1.5}) {
    for (const uint64_t exponent : {0u, 1u, 2u, 3u, 7u, 64u, 1000u}) {
      const double expected = std::pow(base, static_cast<double>(exponent));
      const double bound = static_cast<double>(exponent + 1) * std::ldexp(1, -52);
      EXPECT_NEAR(PowerOf(base, exponent) / expected, 1, bound) << base << "^" << exponent;
    }
  }
}

TEST(PowerOf, ReachesItsLimits) {
  EXPECT_EQ(PowerOf(0, 0), 1);
  EXPECT_EQ(PowerOf(0, 5), 0);
  EXPECT_EQ(PowerOf(0.9, uint64_t{1} << 50), 0);
  EXPECT_EQ(PowerOf(2, 60), std::ldexp(1, 60));
}

// Checkpoint files contain these bits, so they must not depend on the C library or the processor.
TEST(PowerOf, HasTheSameBitsEverywhere) {
  EXPECT_EQ(PowerOf(0.9, 10), 0x1.650bf60432fdap-2);
  EXPECT_EQ(PowerOf(0.999, 1000), 0x1.788526411edacp-2);
  EXPECT_EQ(PowerOf(0.999, 123456), 0x1.be31a29477a64p-179);
}

}  // namespace
}  // namespace sluice
