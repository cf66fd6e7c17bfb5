// SPDX-License-Identifier: Apache-2.0
// Tests the elements that blocktopk and randomk send, and the precision of the values.

#include <algorithm>
#include <cmath>
#include <iterator>

#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"

namespace sluice::compress {
namespace {

std::vector<float> Sent(const std::string& spec, const std::vector<float>& x, LoneKeys keys = {}) {
  const LoneCodec codec(spec);
  return codec.Decoded(codec.Encoded(x, keys), x.size());
}

std::vector<size_t> PlacesOf(const std::vector<float>& decoded) {
  std::vector<size_t> places;
  for (size_t i = 0; i < decoded.size(); ++i) {
    if (decoded[i] != 0) places.push_back(i);
  }
  return places;
}

TEST(BlockTopK, SendsTheFirstLargestOfEachBlock) {
  for (const size_t block : {4u, 64u, 4096u}) {
    const std::string spec = absl::StrCat("blocktopk:", block);
    for (const size_t count : {0u, 1u, 3u, 4u, 5u, 255u, 256u, 257u, 4097u, 10000u}) {
      std::vector<float> x(count);
      CounterRandom random(count, block);
      // Small integers cause many ties, and some blocks contain only zeros.
      for (float& value : x) value = static_cast<float>(random.Below(5)) - 2;
      for (size_t i = block; i < std::min(count, 2 * block); ++i) x[i] = 0;
      std::vector<float> wanted(count);
      for (size_t begin = 0; begin < count; begin += block) {
        size_t best = begin;
        for (size_t i = begin; i < std::min(count, begin + block); ++i) {
          if (std::abs(x[i]) > std::abs(x[best])) best = i;
        }
        wanted[best] = x[best];
      }
      EXPECT_EQ(Sent(spec, x), wanted) << block << " " << count;
    }
  }
}

TEST(BlockTopK, ZerosSendNothingInAnyFormat) {
  for (const char* values : {"+fp16", "+int8", "+int4", "+sign"}) {
    std::vector<float> x(1000, 0.0f);
    x[130] = -3;
    const std::vector<float> sent = Sent(absl::StrCat("blocktopk:64", values), x);
    EXPECT_EQ(PlacesOf(sent), std::vector<size_t>{130}) << values;
    EXPECT_NEAR(sent[130], -3, 0.03) << values;
  }
}

TEST(BlockTopK, APositionBeyondTheEndIsRefused) {
  const FormatEntry& format = *FindFormat(FormatId::kBlockTopK);
  // The payload has blocks of 4 elements, fp16 values, no missing values, and the value 1 at
  // position 1.
  std::vector<std::byte> payload = {std::byte{2}, std::byte{0},    std::byte{0},
                                    std::byte{0}, std::byte{0x3C}, std::byte{1}};
  EXPECT_TRUE(format.validate(payload, 2).ok());
  payload.back() = std::byte{2};
  EXPECT_FALSE(format.validate(payload, 2).ok());
  EXPECT_TRUE(format.validate(payload, 3).ok());
  payload.back() = std::byte{0x12};  // A bit of the padding is set.
  EXPECT_FALSE(format.validate(payload, 3).ok());
  payload.back() = std::byte{2};
  payload[0] = std::byte{13};
  EXPECT_FALSE(format.validate(payload, 3).ok());
}

TEST(RandomK, SendsOneElementOfEachStratum) {
  for (const size_t count : {1u, 15u, 16u, 17u, 255u, 256u, 257u, 10000u}) {
    const std::vector<float> x(count, 1.0f);
    const auto k = static_cast<size_t>(std::ceil(0.05 * static_cast<double>(count)));
    const std::vector<size_t> places = PlacesOf(Sent("randomk:5%", x));
    ASSERT_EQ(places.size(), k);
    for (size_t j = 0; j < k; ++j) {
      EXPECT_GE(places[j], j * count / k);
      EXPECT_LT(places[j], (j + 1) * count / k);
    }
  }
}

TEST(RandomK, PlacesAreThoseOfTheSharedKey) {
  const std::vector<float> a(5000, 1.0f), b(5000, -2.0f);
  const auto places = PlacesOf(Sent("randomk:5%", a, {.own = 1, .shared = 5}));
  EXPECT_EQ(places, PlacesOf(Sent("randomk:5%", b, {.own = 2, .shared = 5})));
  const auto others = PlacesOf(Sent("randomk:5%", a, {.own = 1, .shared = 6}));
  std::vector<size_t> both;
  std::set_intersection(places.begin(), places.end(), others.begin(), others.end(),
                        std::back_inserter(both));
  // By chance alone, about a twentieth of the places are equal.
  EXPECT_LT(both.size(), places.size() / 4);
}

TEST(RandomK, EveryElementIsSentEquallyOften) {
  constexpr size_t kCount = 103;  // Each stratum has 17 or 18 elements.
  constexpr size_t kDraws = 20000;
  const std::vector<float> x(kCount, 1.0f);
  std::vector<double> times(kCount);
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    for (const size_t at : PlacesOf(Sent("randomk:5%", x, {.own = 1, .shared = draw}))) ++times[at];
  }
  for (const double n : times) {
    const double share = n / kDraws;
    EXPECT_GT(share, 1.0 / 18 - 5 * std::sqrt(1.0 / 18 / kDraws));
    EXPECT_LT(share, 1.0 / 17 + 5 * std::sqrt(1.0 / 17 / kDraws));
  }
}

// The mean of the decoded values must be x, and the variance must be (n/k - 1) |x|^2, as theory
// predicts.
TEST(RandomK, UnbiasedVarianceIsWhatTheorySays) {
  constexpr size_t kDraws = 2000;
  const std::vector<float> x = HeavyTailed(2000, 3, 1.0f);
  double energy = 0, error = 0, gain = 0;
  for (const float value : x) energy += double{value} * value;
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    const std::vector<float> sent = Sent("randomk:5%,unbiased", x, {.own = 1, .shared = draw});
    for (size_t i = 0; i < x.size(); ++i) {
      error += (double{sent[i]} - x[i]) * (double{sent[i]} - x[i]) / kDraws;
      gain += double{sent[i]} * x[i] / energy / kDraws;
    }
  }
  EXPECT_NEAR(error / energy, 19, 1);
  EXPECT_NEAR(gain, 1, 0.05);
}

TEST(RandomK, ZerosAmongTheValuesStayZeros) {
  for (const char* values : {"+fp16", "+int8", "+int4", "+sign"}) {
    std::vector<float> x(1000, 0.0f);
    for (size_t i = 0; i < x.size(); i += 3) x[i] = 2;
    const std::vector<float> sent = Sent(absl::StrCat("randomk:50%", values), x);
    EXPECT_GT(PlacesOf(sent).size(), 100u);
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == 0 || sent[i] == 0) {
        EXPECT_EQ(sent[i], 0) << values << " " << i;
      } else {
        EXPECT_NEAR(sent[i], 2, 0.02) << values << " " << i;
      }
    }
  }
}

TEST(RandomK, RefusesMoreValuesThanElements) {
  const LoneCodec codec("randomk:100%");
  const std::vector<std::byte> frame = codec.Encoded(std::vector<float>(8, 1.0f));
  const std::vector<std::byte> payload(frame.begin() + kFrameHeaderSize, frame.end());
  const FormatEntry& format = *FindFormat(FormatId::kRandomK);
  EXPECT_TRUE(format.validate(payload, 8).ok());
  // Only the sender knows the density, so the format accepts other counts.
  EXPECT_TRUE(format.validate(payload, 80).ok());
  EXPECT_FALSE(format.validate(payload, 7).ok());
  EXPECT_FALSE(format.validate(payload, 0).ok());
}

}  // namespace
}  // namespace sluice::compress
