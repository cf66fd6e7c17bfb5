// SPDX-License-Identifier: Apache-2.0
// Tests the unbiased codecs qsgd, terngrad and natural, and their random numbers.

#include "compress/simd/stochastic.h"

#include <cmath>
#include <limits>

#include "base/float_bits.h"
#include "compress/codecs/natural.h"
#include "compress/codecs/qsgd.h"
#include "compress/codecs/terngrad.h"
#include "compress/simd/targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"

namespace sluice::compress {
namespace {

using ::testing::HasSubstr;
using StochasticBytes = std::vector<std::byte>;

// Computes the random number as docs/wire-format.md defines.
uint32_t ReferenceRandom(uint64_t key, uint32_t index) {
  const uint64_t mixed = MixBits(key);
  uint32_t x = index + static_cast<uint32_t>(mixed);
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  x = (x ^ (x >> 16)) ^ static_cast<uint32_t>(mixed >> 32);
  x *= 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  return x ^ (x >> 16);
}

std::vector<float> ReferenceQsgd(int bits, const std::vector<float>& x, uint64_t key) {
  std::vector<float> decoded(x.size());
  const float most = static_cast<float>((1 << (bits - 1)) - 1);
  for (size_t from = 0; from < x.size(); from += 512) {
    const size_t to = std::min(from + 512, x.size());
    float largest = 0;
    for (size_t i = from; i < to; ++i) largest = std::max(largest, std::abs(x[i]));
    const float exact = largest / most;
    uint16_t step = ToBfloat(exact);
    if (FromBfloat(step) < exact) ++step;
    for (size_t i = from; i < to && largest > 0; ++i) {
      const float y = std::min(std::abs(x[i]) * (1 / FromBfloat(step)), most);
      const auto draw = static_cast<float>(ReferenceRandom(key, static_cast<uint32_t>(i)) >> 8);
      const float level = std::floor(y) + (draw * 0x1p-24f < y - std::floor(y) ? 1.0f : 0.0f);
      decoded[i] = std::copysign(level * FromBfloat(step), x[i]);
    }
  }
  return decoded;
}

std::vector<float> ReferenceNatural(const std::vector<float>& x, uint64_t key) {
  std::vector<float> decoded(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    int exponent = 0;
    const double mantissa = 2 * std::frexp(std::abs(double{x[i]}), &exponent) - 1;
    if (x[i] == 0) continue;
    const uint32_t draw = ReferenceRandom(key, static_cast<uint32_t>(i)) >> 9;
    // The reference rounds up if the draw is among the last mantissa * 2^23 of 2^23 numbers.
    const bool up = draw + mantissa * 0x1p23 >= 0x1p23;
    decoded[i] = static_cast<float>(std::copysign(std::ldexp(1, exponent - (up ? 0 : 1)), x[i]));
  }
  return decoded;
}

class StochasticOnTarget : public ::testing::TestWithParam<std::string> {
 protected:
  StochasticOnTarget() { ForceSimdTarget(GetParam()); }
  ~StochasticOnTarget() override { ForceSimdTarget(""); }
};

TEST_P(StochasticOnTarget, DecodeToTheirFormulas) {
  for (const size_t count : {1u, 2u, 15u, 16u, 17u, 63u, 255u, 511u, 512u, 513u, 1000u, 3000u}) {
    const std::vector<float> x = HeavyTailed(count, count);
    for (const int bits : {2, 3, 4, 5, 6, 7, 8}) {
      const LoneCodec codec(absl::StrCat("qsgd:", bits));
      EXPECT_EQ(codec.Decoded(codec.Encoded(x, {.own = count}), count),
                ReferenceQsgd(bits, x, count))
          << bits << " " << count;
    }
    const LoneCodec codec("natural");
    EXPECT_EQ(codec.Decoded(codec.Encoded(x, {.own = count}), count), ReferenceNatural(x, count))
        << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, StochasticOnTarget, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& param) { return param.param; });

// Random numbers of adjacent keys, of adjacent indices and of each bit must be uniform and
// independent.
TEST(Stochastic, RandomNumbersAreSpreadAndIndependent) {
  constexpr uint32_t kCount = 1 << 16;
  for (const uint64_t key : {0ull, 1ull, 2ull, 0x123456789ABCDEFull}) {
    double sum = 0, next = 0, other = 0;
    std::vector<int> bins(256), ones(32);
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint32_t x = ReferenceRandom(key, i);
      const double u = x * 0x1p-32 - 0.5;
      sum += u;
      next += u * (ReferenceRandom(key, i + 1) * 0x1p-32 - 0.5);
      other += u * (ReferenceRandom(key + 1, i) * 0x1p-32 - 0.5);
      ++bins[x >> 24];
      for (int bit = 0; bit < 32; ++bit) ones[bit] += static_cast<int>(x >> bit & 1);
    }
    const double root = std::sqrt(double{kCount});
    EXPECT_LT(std::abs(sum), 5 * root * std::sqrt(1 / 12.0));
    EXPECT_LT(std::abs(next), 5 * root / 12);
    EXPECT_LT(std::abs(other), 5 * root / 12);
    double chi = 0;
    for (const int count : bins) chi += (count - 256.0) * (count - 256.0) / 256;
    EXPECT_NEAR(chi, 255, 6 * std::sqrt(2 * 255.0));
    for (const int count : ones) EXPECT_NEAR(count, kCount / 2.0, 5 * root / 2);
  }
}

struct Moments {
  double bias = 0;      // |mean error|^2.
  double variance = 0;  // Variance of one draw, summed over the elements.
};
Moments MomentsOf(const std::string& spec, const std::vector<float>& x, uint64_t draws) {
  const LoneCodec codec(spec);
  std::vector<double> sum(x.size());
  Moments moments;
  for (uint64_t draw = 1; draw <= draws; ++draw) {
    const std::vector<float> decoded = codec.Decoded(codec.Encoded(x, {.own = draw}), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double error = double{decoded[i]} - x[i];
      sum[i] += error;
      moments.variance += error * error / static_cast<double>(draws);
    }
  }
  for (const double error : sum) {
    moments.bias += error * error / static_cast<double>(draws) / static_cast<double>(draws);
  }
  return moments;
}

// Checks that there is no bias. Without a bias, |mean - x|^2 is variance / draws. The limits on
// each side are 4 standard deviations of a sum of `count` squares.
void ExpectUnbiased(const Moments& moments, uint64_t draws, size_t count) {
  const double expected = moments.variance / static_cast<double>(draws);
  EXPECT_NEAR(moments.bias / expected, 1, 4 * std::sqrt(6.0 / static_cast<double>(count)) + 0.02);
}

TEST(Qsgd, IsUnbiasedWithTheVarianceOfItsSteps) {
  constexpr uint64_t kDraws = 400;
  std::vector<float> x(2048);
  CounterRandom random(9);
  for (float& value : x) value = static_cast<float>(2 * random.Uniform() - 1);
  for (const int bits : {2, 3, 4, 8}) {
    const Moments moments = MomentsOf(absl::StrCat("qsgd:", bits), x, kDraws);
    ExpectUnbiased(moments, kDraws, x.size());
    double theory = 0;
    const double most = (1 << (bits - 1)) - 1;
    for (size_t from = 0; from < x.size(); from += 512) {
      double largest = 0;
      for (size_t i = from; i < from + 512; ++i)
        largest = std::max(largest, std::abs(double{x[i]}));
      const auto exact = static_cast<float>(largest / most);
      double step = FromBfloat(ToBfloat(exact));
      if (step < exact) step = FromBfloat(static_cast<uint16_t>(ToBfloat(exact) + 1));
      for (size_t i = from; i < from + 512; ++i) {
        const double part = std::abs(x[i]) / step - std::floor(std::abs(x[i]) / step);
        theory += step * step * part * (1 - part);
      }
    }
    EXPECT_NEAR(moments.variance / theory, 1, 0.02) << bits;
  }
}

TEST(Natural, IsUnbiasedWithTheVarianceOfItsNeighbours) {
  constexpr uint64_t kDraws = 400;
  const std::vector<float> x = HeavyTailed(2048, 3);
  const Moments moments = MomentsOf("natural", x, kDraws);
  double theory = 0, energy = 0, fourth = 0;
  for (const float value : x) {
    int exponent = 0;
    std::frexp(value, &exponent);
    const double low = std::ldexp(1, exponent - 1), size = std::abs(double{value});
    const double variance = (size - low) * (2 * low - size);
    theory += variance;
    fourth += variance * variance;
    energy += size * size;
  }
  // A few large elements have most of the energy, so the limit depends on the fourth moment.
  EXPECT_NEAR(moments.variance / theory, 1, 4 * std::sqrt(2 * fourth / kDraws) / theory + 0.01);
  EXPECT_LT(moments.variance, energy / 8 * 1.02);
  EXPECT_NEAR(moments.bias * kDraws / moments.variance, 1, 6 * std::sqrt(2 * fourth) / theory);
}

TEST(Natural, PowersOfTwoAreExact) {
  std::vector<float> x;
  for (int exponent = -126; exponent <= 127; ++exponent) {
    x.push_back(std::ldexp(exponent % 3 == 0 ? -1.0f : 1.0f, exponent));
  }
  x.insert(x.end(), 700, 0.0f);
  const LoneCodec codec("natural");
  for (uint64_t key = 0; key < 5; ++key) {
    EXPECT_EQ(codec.Decoded(codec.Encoded(x, {.own = key}), x.size()), x);
  }
}

TEST(Natural, SubnormalNumbersAreRightOnAverageAndHugeOnesAreCut) {
  const std::vector<float> x(4096, 0x1p-128f);
  const LoneCodec codec("natural");
  double mean = 0;
  for (const float value : codec.Decoded(codec.Encoded(x), x.size())) {
    EXPECT_TRUE(value == 0 || value == 0x1p-126f);
    mean += value / 4096.0;
  }
  EXPECT_NEAR(mean / 0x1p-128, 1, 4 * std::sqrt(3.0 / 4096));
  const std::vector<float> huge(600, -std::numeric_limits<float>::max());
  EXPECT_EQ(codec.Decoded(codec.Encoded(huge), 600), std::vector<float>(600, -0x1p127f));
}

TEST(Natural, TakesTheBitsOfItsBlocksRange) {
  const LoneCodec codec("natural");
  const auto size = [&](const std::vector<float>& x) {
    return codec.Encoded(x).size() - kFrameHeaderSize;
  };
  EXPECT_EQ(size(std::vector<float>(1024, 0.0f)), 4u);
  EXPECT_EQ(size(std::vector<float>(1024, 0.25f)), 4u + 2 * 128);
  std::vector<float> x(1024, 0.25f);
  x[3] = 2;  // The exponents -2 to 1 are the levels 1 to 4.
  EXPECT_EQ(size(x), 4u + 2 * 64 + 4 * 64);
}

TEST(Qsgd, RefusesOtherBits) {
  EXPECT_FALSE(ParseCodecSpec("qsgd:1").ok());
  EXPECT_FALSE(ParseCodecSpec("qsgd:9").ok());
  EXPECT_FALSE(ParseCodecSpec("qsgd").ok());
  EXPECT_FALSE(ParseCodecSpec("qsgd:4/ef").ok());
  EXPECT_TRUE(ParseCodecSpec("qsgd:4/noef").ok());
}

StochasticBytes AsBytes(const std::vector<int>& values) {
  StochasticBytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(Qsgd, RefusesWhatNoEncoderWrites) {
  const auto message = [](const std::vector<int>& bytes, size_t count) {
    return std::string(ValidateQsgd(AsBytes(bytes), count).message());
  };
  EXPECT_EQ(message({3, 0x80, 0x3F, 0b001, 0b011, 0b100}, 3), "");
  EXPECT_EQ(message({2, 0, 0, 0, 0}, 3), "");
  EXPECT_THAT(message({}, 3), HasSubstr("has 0 bytes"));
  EXPECT_THAT(message({1, 0x80, 0x3F, 0}, 3), HasSubstr("codes of 1 bits"));
  EXPECT_THAT(message({9, 0x80, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 3), HasSubstr("codes of 9 bits"));
  EXPECT_THAT(message({2, 0x80, 0x3F, 0}, 3), HasSubstr("should have 5"));
  EXPECT_THAT(message({2, 0x80, 0x3F, 2, 1}, 3), HasSubstr("a negative zero"));
  EXPECT_THAT(message({2, 0x80, 0x3F, 0, 8}, 3), HasSubstr("bits after its last element"));
  EXPECT_THAT(message({2, 0x80, 0x3F, 8, 8}, 3), HasSubstr("bits after its last element"));
  EXPECT_THAT(message({2, 0, 0, 0, 1}, 3), HasSubstr("codes without a step"));
  EXPECT_THAT(message({2, 0x80, 0x7F, 0, 1}, 3), HasSubstr("out of range"));
  EXPECT_THAT(message({3, 0x7F, 0x7F, 0, 1, 0}, 3), HasSubstr("out of range"));
  EXPECT_THAT(message({2, 0x7F, 0, 0, 1}, 3), HasSubstr("out of range"));
  EXPECT_THAT(message({2, 0x80, 0xBF, 0, 1}, 3), HasSubstr("out of range"));
}

TEST(Natural, RefusesWhatNoEncoderWrites) {
  const auto message = [](const std::vector<int>& bytes, size_t count) {
    return std::string(ValidateNatural(AsBytes(bytes), count).message());
  };
  EXPECT_EQ(message({127, 1, 0b001, 0b011}, 3), "");
  EXPECT_EQ(message({127, 2, 0b001, 0b011, 0b010}, 3), "");
  EXPECT_EQ(message({0, 0}, 3), "");
  EXPECT_EQ(message({}, 0), "");
  EXPECT_THAT(message({0}, 3), HasSubstr("should have 2"));
  EXPECT_THAT(message({127, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 3), HasSubstr("exponents of 9 bits"));
  EXPECT_THAT(message({127, 0}, 3), HasSubstr("an exponent but no elements"));
  EXPECT_THAT(message({127, 1, 0}, 3), HasSubstr("planes of 2 bytes, there are 1"));
  EXPECT_THAT(message({127, 1, 0, 1, 0}, 3), HasSubstr("should have 4"));
  EXPECT_THAT(message({127, 1, 0b100, 0b011}, 3), HasSubstr("a negative zero"));
  EXPECT_THAT(message({127, 1, 0, 8}, 3), HasSubstr("bits after its last element"));
  EXPECT_THAT(message({127, 1, 0, 0}, 3), HasSubstr("smallest exponent"));
  EXPECT_THAT(message({127, 2, 0, 0, 1}, 3), HasSubstr("smallest exponent"));
  EXPECT_THAT(message({127, 2, 0, 1, 0}, 3), HasSubstr("one plane too many"));
  EXPECT_THAT(message({254, 2, 0, 1, 2}, 3), HasSubstr("out of range"));
  EXPECT_THAT(message({255, 1, 0, 1}, 3), HasSubstr("out of range"));
  EXPECT_THAT(message({0, 1, 0, 1}, 3), HasSubstr("out of range"));
}

TEST(TernGrad, DecodesToItsFormula) {
  for (const size_t count : {1u, 15u, 17u, 511u, 512u, 513u, 3000u}) {
    for (const float spread : {0.0f, 1.0f}) {
      std::vector<float> x = HeavyTailed(count, count);
      for (size_t i = 0; i < count; ++i) x[i] += spread * (i % 2 == 0 ? 1.0f : -1.0f);
      double squares = 0;
      float largest = 0;
      for (size_t from = 0; from < count; from += 512) {
        double lanes[16] = {}, sum = 0;
        for (size_t i = from; i < std::min(from + 512, count); ++i) {
          lanes[i % 16] += double{x[i]} * x[i];
          largest = std::max(largest, std::abs(x[i]));
        }
        for (const double lane : lanes) sum += lane;
        squares += sum;
      }
      const double clip = 2.5 * std::sqrt(squares / static_cast<double>(count));
      const float scale = ToShortFloatUp(std::min(largest, static_cast<float>(clip)));
      std::vector<float> wanted(count);
      for (size_t i = 0; i < count; ++i) {
        const float y = std::min(std::abs(x[i]) * (1 / scale), 1.0f);
        const auto draw = static_cast<float>(ReferenceRandom(5, static_cast<uint32_t>(i)) >> 8);
        if (y == 1 || draw * 0x1p-24f < y) wanted[i] = std::copysign(scale, x[i]);
      }
      const LoneCodec codec("terngrad");
      EXPECT_EQ(codec.Decoded(codec.Encoded(x, {.own = 5}), count), wanted) << count;
    }
  }
}

TEST(TernGrad, IsUnbiasedWithItsVarianceWhereNothingIsCut) {
  constexpr uint64_t kDraws = 400;
  std::vector<float> x(2048);
  CounterRandom random(9);
  float largest = 0;
  for (float& value : x) {
    value = static_cast<float>(2 * random.Uniform() - 1);
    largest = std::max(largest, std::abs(value));
  }
  const Moments moments = MomentsOf("terngrad", x, kDraws);
  ExpectUnbiased(moments, kDraws, x.size());
  double theory = 0;
  for (const float value : x) theory += std::abs(value) * double{largest - std::abs(value)};
  EXPECT_NEAR(moments.variance / theory, 1, 0.02);
}

TEST(TernGrad, TakesTheShorterOfBitmapAndCodedPositions) {
  const LoneCodec codec("terngrad");
  const std::vector<float> all(4096, 1.0f);
  EXPECT_EQ(codec.Encoded(all).size(), kFrameHeaderSize + 5 + 512 + 512);
  std::vector<float> one(4096, 0.0f);
  one[1000] = -1;
  EXPECT_LT(codec.Encoded(one).size(), kFrameHeaderSize + 16);
  EXPECT_EQ(codec.Encoded(std::vector<float>(4096, 0.0f)).size(), kFrameHeaderSize + 9);
}

TEST(TernGrad, RefusesWhatNoEncoderWrites) {
  const auto message = [](const std::vector<int>& bytes, size_t count) {
    return std::string(ValidateTernGrad(AsBytes(bytes), count).message());
  };
  EXPECT_EQ(message({0, 0, 0, 0x80, 0x3F, 0b101, 0b01}, 3), "");
  EXPECT_EQ(message({2, 0, 0, 0x80, 0x3F, 1, 0, 0, 0, 1, 1, 0b1}, 3), "");
  EXPECT_EQ(message({1, 0, 0, 0, 0, 0, 0, 0, 0}, 3), "");
  EXPECT_THAT(message({0, 0, 0, 0x80}, 3), HasSubstr("do not fit"));
  EXPECT_THAT(message({0, 0, 0, 0x80, 0x3F, 0b101, 0b01, 0}, 3), HasSubstr("do not fit"));
  EXPECT_THAT(message({33, 0, 0, 0x80, 0x3F, 0, 0, 0, 0}, 3), HasSubstr("do not fit"));
  EXPECT_THAT(message({0, 0, 0, 0x80, 0x3F, 8, 0}, 3), HasSubstr("padding"));
  EXPECT_THAT(message({0, 0, 0, 0x80, 0x3F, 1, 2}, 3), HasSubstr("padding"));
  EXPECT_THAT(message({0, 1, 0, 0x80, 0x3F, 1, 1}, 3), HasSubstr("out of range"));
  EXPECT_THAT(message({0, 0, 0, 0x80, 0x7F, 1, 1}, 3), HasSubstr("out of range"));
  EXPECT_THAT(message({0, 0, 0, 0x80, 0xBF, 1, 1}, 3), HasSubstr("out of range"));
  EXPECT_THAT(message({0, 0, 1, 0, 0, 1, 1}, 3), HasSubstr("out of range"));
  EXPECT_THAT(message({0, 0, 0, 0, 0, 1, 1}, 3), HasSubstr("values but no scale"));
  EXPECT_THAT(message({2, 0, 0, 0x80, 0x3F, 0, 0, 0, 0}, 3), HasSubstr("no positions"));
  EXPECT_THAT(message({2, 0, 0, 0x80, 0x3F, 1, 0, 0, 0, 1, 1, 0b10}, 3), HasSubstr("not below 3"));
  EXPECT_THAT(message({2, 0, 0, 0x80, 0x3F, 1, 0, 0, 0, 1, 1, 0b11}, 3),
              HasSubstr("position planes"));
}

}  // namespace
}  // namespace sluice::compress
