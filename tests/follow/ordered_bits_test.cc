// SPDX-License-Identifier: Apache-2.0
#include "follow/ordered_bits.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/float_bits.h"
#include "gtest/gtest.h"

namespace sluice::follow {
namespace {

TEST(OrderedBits, NumbersEveryPatternOnceInTheOrderOfItsValue) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    EXPECT_EQ(FromOrdered(ToOrdered(static_cast<uint16_t>(bits))), bits);
  }
  for (uint32_t number = 1; number <= 0xFFFF; ++number) {
    const float below = FromBfloat(FromOrdered(static_cast<uint16_t>(number - 1)));
    const float above = FromBfloat(FromOrdered(static_cast<uint16_t>(number)));
    if (std::isnan(below) || std::isnan(above)) continue;
    EXPECT_LE(below, above);
  }
}

TEST(OrderedBits, ZerosAreNeighbours) {
  EXPECT_EQ(ToOrdered(uint16_t{0x8000}) + 1, ToOrdered(uint16_t{0}));
  EXPECT_EQ(ToOrdered(uint32_t{0x80000000}) + 1, ToOrdered(uint32_t{0}));
}

TEST(OrderedBits, EveryStepLeadsToItsTarget) {
  const uint32_t samples[] = {0,      1,      2,      0x7F7F, 0x7F80, 0x7FC0,
                              0x7FFF, 0x8000, 0x8001, 0xFF80, 0xFFFF};
  for (const uint32_t from : samples) {
    for (uint32_t to = 0; to <= 0xFFFF; ++to) {
      const Step step = StepBetween(static_cast<uint16_t>(from), static_cast<uint16_t>(to));
      EXPECT_EQ(step.magnitude == 0, from == to);
      EXPECT_LE(step.magnitude, uint32_t{0x8000});
      EXPECT_EQ(TakeStep(static_cast<uint16_t>(from), step), to);
    }
    const uint32_t wide = from << 16 | from;
    for (const uint32_t to : {uint32_t{0}, uint32_t{0x7FFFFFFF}, uint32_t{0x80000000}, ~wide}) {
      EXPECT_EQ(TakeStep(wide, StepBetween(wide, to)), to);
    }
  }
}

TEST(OrderedBits, NextValueIsOneStepAway) {
  const auto one = std::bit_cast<uint32_t>(1.0f);
  const auto next = std::bit_cast<uint32_t>(std::nextafter(1.0f, 2.0f));
  EXPECT_EQ(StepBetween(one, next).magnitude, 1u);
  EXPECT_FALSE(StepBetween(one, next).down);
  const auto minus = std::bit_cast<uint32_t>(-1.0f);
  const auto below = std::bit_cast<uint32_t>(std::nextafter(-1.0f, -2.0f));
  EXPECT_EQ(StepBetween(minus, below).magnitude, 1u);
  EXPECT_TRUE(StepBetween(minus, below).down);
}

}  // namespace
}  // namespace sluice::follow
