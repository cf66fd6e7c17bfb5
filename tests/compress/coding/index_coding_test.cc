// SPDX-License-Identifier: Apache-2.0
#include "compress/coding/index_coding.h"

#include <cmath>

#include "base/random.h"
#include "gtest/gtest.h"

namespace sluice::compress {
namespace {

std::vector<uint32_t> RoundTrip(const std::vector<uint32_t>& numbers, const RicePlan& plan) {
  std::vector<std::byte> remainders, unary;
  AppendRemainders(numbers, plan.parameter, &remainders);
  AppendUnary(numbers, plan, &unary);
  EXPECT_TRUE(IsPadded(remainders, uint64_t{numbers.size()} * plan.parameter));
  EXPECT_TRUE(IsUnaryPlane(unary, numbers.size()));
  std::vector<uint32_t> read;
  ForEachRice(remainders, unary, plan.parameter, [&](uint64_t number) {
    read.push_back(static_cast<uint32_t>(number));
    return true;
  });
  return read;
}

std::vector<uint32_t> IndexCodingRandomGaps(size_t count, double density, uint64_t seed) {
  CounterRandom random(seed);
  std::vector<uint32_t> gaps(count);
  for (uint32_t& gap : gaps) {
    gap = static_cast<uint32_t>(std::log(1 - random.Uniform()) / std::log(1 - density));
  }
  return gaps;
}

TEST(IndexCoding, NumbersReadBackAtEveryParameter) {
  for (const size_t count : {0u, 1u, 2u, 7u, 8u, 9u, 63u, 64u, 65u, 1000u}) {
    const std::vector<uint32_t> numbers = IndexCodingRandomGaps(count, 0.02, count);
    uint64_t sum = 0;
    for (int parameter = 0; parameter <= kRiceParameterMax; ++parameter) {
      sum = 0;
      for (const uint32_t number : numbers) sum += number >> parameter;
      EXPECT_EQ(RoundTrip(numbers, {parameter, sum + count}), numbers) << count << " " << parameter;
    }
    EXPECT_EQ(RoundTrip(numbers, ChooseRice(numbers)), numbers);
  }
}

TEST(IndexCoding, LongRunsOfZerosCrossWords) {
  for (const uint32_t number : {62u, 63u, 64u, 65u, 127u, 128u, 129u, 1000u}) {
    const std::vector<uint32_t> numbers = {number, 0, 0, number, 1};
    EXPECT_EQ(RoundTrip(numbers, {0, 2 * uint64_t{number} + 6}), numbers) << number;
  }
}

TEST(IndexCoding, ExtremesReadBack) {
  const std::vector<uint32_t> numbers = {0xFFFFFFFF, 0, 0x80000000, 1};
  const RicePlan plan = ChooseRice(numbers);
  EXPECT_LE(plan.unary_bits, 16u);
  EXPECT_EQ(RoundTrip(numbers, plan), numbers);
}

TEST(IndexCoding, SizeIsWithinFourPercentOfEntropy) {
  for (const double p : {0.001, 0.01, 0.05, 0.1, 0.2}) {
    const std::vector<uint32_t> gaps = IndexCodingRandomGaps(20000, p, 3);
    const RicePlan plan = ChooseRice(gaps);
    const double bits = static_cast<double>(plan.unary_bits) / 20000 + plan.parameter;
    const double entropy = (-p * std::log2(p) - (1 - p) * std::log2(1 - p)) / p;
    EXPECT_LT(bits, entropy * 1.04) << p;
  }
}

TEST(IndexCoding, NeverLargerThanABitmapOrFixedWidth) {
  const std::vector<std::vector<uint32_t>> cases = {
      std::vector<uint32_t>(1000, 0),
      std::vector<uint32_t>(1000, 1),
      {0, 0, 0, 100000},
      {100000},
      std::vector<uint32_t>(50, 4077),
      {1, 4077, 1, 4077, 0, 0, 0, 0, 4077},
  };
  for (const std::vector<uint32_t>& numbers : cases) {
    uint64_t sum = 0;
    uint32_t largest = 0;
    for (const uint32_t number : numbers) {
      sum += number;
      largest = std::max(largest, number);
    }
    const RicePlan plan = ChooseRice(numbers);
    const uint64_t bits = plan.unary_bits + numbers.size() * plan.parameter;
    EXPECT_LE(bits, sum + numbers.size());
    EXPECT_LE(bits, numbers.size() * (1 + std::bit_width(largest)));
  }
}

TEST(IndexCoding, PlanesThatLieAreFound) {
  const std::vector<uint32_t> numbers = {3, 0, 9};
  std::vector<std::byte> unary;
  AppendUnary(numbers, {0, 15}, &unary);
  EXPECT_TRUE(IsUnaryPlane(unary, 3));
  EXPECT_FALSE(IsUnaryPlane(unary, 2));
  EXPECT_FALSE(IsUnaryPlane(unary, 4));
  unary.push_back(std::byte{0});
  EXPECT_FALSE(IsUnaryPlane(unary, 3));
  EXPECT_FALSE(IsUnaryPlane({}, 1));
  EXPECT_FALSE(IsUnaryPlane(unary, 0));
  const std::vector<std::byte> plane = {std::byte{0xFF}, std::byte{0x07}};
  EXPECT_TRUE(IsPadded(plane, 11));
  EXPECT_FALSE(IsPadded(plane, 10));
  EXPECT_FALSE(IsPadded(plane, 8));
  EXPECT_FALSE(IsPadded(plane, 17));
}

}  // namespace
}  // namespace sluice::compress
