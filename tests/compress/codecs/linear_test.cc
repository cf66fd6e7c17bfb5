// SPDX-License-Identifier: Apache-2.0
// Compares linear quantization with plain loops, and tests the properties of random rounding.

#include "compress/codecs/linear.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/float_bits.h"
#include "compress/simd/targets.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

constexpr size_t kBlock = 256;

struct LinearResult {
  std::vector<std::byte> frame;
  std::vector<float> decoded;
};

LinearResult EncodeLinear(const std::string& spec, const std::vector<float>& values,
                          uint64_t key = 1) {
  LinearResult result;
  EXPECT_TRUE(
      EncodeFrame(*CodecFor(spec), {.gradient = values, .own_key = key}, &result.frame).ok());
  result.decoded = Decode(result.frame, values.size());
  return result;
}

float BfloatUp(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0xFFFF) & 0xFFFF0000);
}

// Computes the decoded values of a block from the formulas in docs/compression.md.
std::vector<float> Symmetric(absl::Span<const float> block, int most) {
  float largest = 0;
  for (const float x : block) largest = std::max(largest, std::abs(x));
  const float scale = BfloatUp(largest / static_cast<float>(most));
  std::vector<float> decoded(block.size());
  if (scale < std::numeric_limits<float>::min()) return decoded;
  for (size_t i = 0; i < block.size(); ++i) {
    const float code = std::nearbyint(block[i] * (1 / scale));
    decoded[i] = std::clamp(code, -static_cast<float>(most), static_cast<float>(most)) * scale;
  }
  return decoded;
}

std::vector<float> MinMax(absl::Span<const float> block, int most) {
  const float least = *std::min_element(block.begin(), block.end());
  const float bfloat = least < 0
                           ? -BfloatUp(-least)
                           : std::bit_cast<float>(std::bit_cast<uint32_t>(least) & 0xFFFF0000);
  const float largest = *std::max_element(block.begin(), block.end());
  const float scale = BfloatUp((largest - bfloat) / static_cast<float>(most));
  std::vector<float> decoded(block.size(), bfloat);
  if (scale < std::numeric_limits<float>::min()) return decoded;
  for (size_t i = 0; i < block.size(); ++i) {
    const float code = std::nearbyint((block[i] - bfloat) * (1 / scale));
    decoded[i] = bfloat + std::clamp(code, 0.0f, static_cast<float>(most)) * scale;
  }
  return decoded;
}

TEST(Linear, IsWhatTheFormulasSay) {
  struct Case {
    const char* spec;
    int most;
    bool minmax;
  };
  for (const Case& c : {Case{"int8", 127, false},
                        {"int4", 7, false},
                        {"int2", 1, false},
                        {"int8:minmax", 255, true},
                        {"int4:minmax", 15, true}}) {
    for (const size_t count : {1u, 2u, 3u, 5u, 255u, 256u, 257u, 511u, 515u, 3000u}) {
      const std::vector<float> values = HeavyTailed(count, count);
      const std::vector<float> decoded = EncodeLinear(c.spec, values).decoded;
      for (size_t at = 0; at < count; at += kBlock) {
        const auto block = absl::MakeConstSpan(values).subspan(at, kBlock);
        const std::vector<float> wanted =
            c.minmax ? MinMax(block, c.most) : Symmetric(block, c.most);
        for (size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_EQ(decoded[at + i], wanted[i]) << c.spec << " " << count << " " << at + i;
        }
      }
    }
  }
}

TEST(Linear, NegativeZerosTakeNoScale) {
  for (const char* const spec : {"int8:minmax", "int4:minmax"}) {
    const std::vector<float> gradient(kBlock, -0.0f);
    std::vector<float> residual = gradient;
    std::vector<std::byte> frame;
    ASSERT_TRUE(EncodeFrame(*CodecFor(spec),
                            {.gradient = gradient, .residual = absl::MakeSpan(residual)}, &frame)
                    .ok());
    // The minimum and the scale follow the number of bits.
    for (size_t i = 1; i < 5; ++i) {
      EXPECT_EQ(frame[kFrameHeaderSize + i], std::byte{0}) << spec << " " << i;
    }
  }
}

TEST(Linear, ErrorsReachHalfAStepAndNoMore) {
  const std::vector<float> values = HeavyTailed(kBlock, 4);
  float largest = 0, least = values[0], most = values[0];
  for (const float x : values) {
    largest = std::max(largest, std::abs(x));
    least = std::min(least, x);
    most = std::max(most, x);
  }
  struct Case {
    const char* spec;
    float step;
    float share;  // Error limit as a fraction of a step.
  };
  for (const Case& c : {Case{"int8", largest / 127, 0.5f},
                        {"int4", largest / 7, 0.5f},
                        {"int2", largest, 0.5f},
                        {"int8:minmax", (most - least) / 255, 0.5f},
                        {"int4:minmax", (most - least) / 15, 0.5f},
                        {"int8:sr", largest / 127, 1.0f},
                        {"int4:sr", largest / 7, 1.0f}}) {
    const std::vector<float> decoded = EncodeLinear(c.spec, values).decoded;
    float worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(values[i] - decoded[i]));
    }
    // The limit has a margin because scales are rounded up to 8 bits and minimums are rounded down.
    EXPECT_LE(worst, c.step * c.share * 1.03f) << c.spec;
    EXPECT_GE(worst, c.step * c.share * 0.55f) << c.spec;
  }
}

// A value in a block is encoded with 4000 different keys. The decoded values must have exactly two
// levels, and their mean must equal the value.
TEST(Linear, RoundsAtRandomToTheMean) {
  for (const char* spec : {"int8:sr", "int4:sr", "int2:sr", "int8:minmax,sr", "int4:minmax,sr"}) {
    std::vector<float> values(64, 0.0f);
    values[0] = 1;
    values[1] = -1;
    values[7] = 0.3337f;
    const int draws = 4000;
    double sum = 0;
    std::vector<float> levels;
    for (int draw = 0; draw < draws; ++draw) {
      const float decoded = EncodeLinear(spec, values, draw).decoded[7];
      sum += decoded;
      if (std::find(levels.begin(), levels.end(), decoded) == levels.end())
        levels.push_back(decoded);
    }
    ASSERT_EQ(levels.size(), 2u) << spec;
    const double step = std::abs(levels[0] - levels[1]);
    const double share = (0.3337 - std::min(levels[0], levels[1])) / step;
    const double deviation = step * std::sqrt(share * (1 - share) / draws);
    EXPECT_LE(std::abs(sum / draws - 0.3337), 4 * deviation) << spec;
  }
}

TEST(Linear, ExtremeBlocksStayFinite) {
  const float max = std::numeric_limits<float>::max();
  for (const char* spec : {"int8", "int4", "int2", "int8:minmax", "int4:minmax", "int8:sr"}) {
    for (const std::vector<float>& values : {std::vector<float>{max, -max, 1},
                                             {max, max, max},
                                             {-max, -max, 0},
                                             {1e-44f, -1e-45f, 0},
                                             {1e-38f, 2e-38f, -3e-38f},
                                             {5, 5, 5}}) {
      for (const float x : EncodeLinear(spec, values).decoded)
        EXPECT_TRUE(std::isfinite(x)) << spec;
    }
  }
  EXPECT_EQ(EncodeLinear("int4:minmax", {5, 5, 5}).decoded, (std::vector<float>{5, 5, 5}));
}

// Instruction sets may disagree about which of two zeros is the minimum. The bytes must be equal
// anyway.
TEST(Linear, ZerosOfBothSignsGiveEqualBytesEverywhere) {
  std::vector<float> values(300);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? -0.0f : 0.0f;
  values[299] = 1;
  for (const char* spec : {"int8", "int4:minmax", "int8:minmax,sr"}) {
    const std::vector<std::byte> frame = EncodeLinear(spec, values).frame;
    for (const std::string& target : SimdTargets()) {
      ForceSimdTarget(target);
      EXPECT_EQ(EncodeLinear(spec, values).frame, frame) << spec << " " << target;
    }
    ForceSimdTarget("");
  }
}

TEST(Linear, PayloadsThatLie) {
  const std::vector<float> values = HeavyTailed(301, 8);
  const auto payload_of = [&](const char* spec) {
    const std::vector<std::byte> frame = EncodeLinear(spec, values).frame;
    return std::vector<std::byte>(frame.begin() + kFrameHeaderSize, frame.end());
  };
  std::vector<std::byte> payload = payload_of("int4");
  ASSERT_TRUE(ValidateInt4(payload, 301).ok());
  EXPECT_FALSE(ValidateInt4(payload, 300).ok());
  // The last block has 45 codes, so one nibble of the last byte is padding.
  payload.back() |= std::byte{0xF0};
  EXPECT_FALSE(ValidateInt4(payload, 301).ok());
  payload = payload_of("int4");
  payload[4] = std::byte{0x88};  // The code -8 is invalid.
  EXPECT_FALSE(ValidateInt4(payload, 301).ok());
  payload = payload_of("int4");
  payload[0] = payload[1] = std::byte{0};
  EXPECT_FALSE(ValidateInt4(payload, 301).ok());  // The payload has codes without a scale.
  payload = payload_of("int4");
  payload[1] = std::byte{0x7F};  // The scale is so large that 7 times the scale overflows.
  EXPECT_FALSE(ValidateInt4(payload, 301).ok());
  payload = payload_of("int2");
  payload[4] = std::byte{0xAA};  // The code -2 is invalid.
  EXPECT_FALSE(ValidateInt2(payload, 301).ok());
  payload = payload_of("int8:minmax");
  ASSERT_TRUE(ValidateMinMax(payload, 301).ok());
  for (const uint8_t bits : {0, 1, 3, 4, 16}) {
    payload[0] = std::byte{bits};
    EXPECT_FALSE(ValidateMinMax(payload, 301).ok());
  }
  payload = payload_of("int8:minmax");
  payload[2] = std::byte{0x7F};
  payload[1] = std::byte{0x80};  // A scale of infinity is invalid.
  EXPECT_FALSE(ValidateMinMax(payload, 301).ok());
  EXPECT_FALSE(ValidateMinMax({}, 0).ok());
}

}  // namespace
}  // namespace sluice::compress
