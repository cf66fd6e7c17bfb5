// SPDX-License-Identifier: Apache-2.0
// Compares decoded values, one element at a time and at odd sizes, with values from formulas.

#include <cmath>

#include "absl/strings/str_format.h"
#include "compress/codecs/sparse.h"
#include "compress/codecs/ternary.h"
#include "compress/simd/targets.h"
#include "gtest/gtest.h"
#include "tests/compress/reference_codecs.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

constexpr size_t kSizes[] = {1,  2,   3,   7,   8,   9,   15,  16,  17,   31,   33,   63,
                             65, 127, 129, 255, 256, 257, 511, 513, 1000, 1023, 1025, 3001};

std::vector<float> EncodeDecodeCodecValues(const std::string& spec,
                                           const std::vector<float>& values, float threshold = 0) {
  std::vector<std::byte> frame;
  EXPECT_TRUE(EncodeFrame(*CodecFor(spec), {values, {}, threshold}, &frame).ok());
  return Decode(frame, values.size());
}

TEST(CodecValues, Int8) {
  for (const size_t size : kSizes) {
    const std::vector<float> values = HeavyTailed(size, size);
    EXPECT_EQ(EncodeDecodeCodecValues("int8", values), ReferenceInt8(values)) << size;
  }
}

TEST(CodecValues, Int8ErrsByHalfAStep) {
  const std::vector<float> values = HeavyTailed(256, 3);
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::abs(x));
  const std::vector<float> decoded = EncodeDecodeCodecValues("int8", values);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(values[i] - decoded[i]), largest / 127 / 2 * 1.01f);
  }
}

TEST(CodecValues, TopK) {
  for (const size_t size : kSizes) {
    const std::vector<float> values = HeavyTailed(size, size);
    const float tau = ToShortFloat(1e-2f);
    EXPECT_EQ(EncodeDecodeCodecValues("topk:1%", values, tau), ReferenceTopKFp16(values, tau))
        << size;
    EXPECT_EQ(EncodeDecodeCodecValues("topk:1%+int4", values, tau), ReferenceTopKInt4(values, tau))
        << size;
  }
}

TEST(CodecValues, TopKKeepsAboutItsDensity) {
  for (const double density : {0.001, 0.01, 0.1}) {
    const std::vector<float> values = HeavyTailed(65536, 4);
    const std::vector<float> decoded =
        EncodeDecodeCodecValues(ToString({.codec = CodecId::kTopK, .level = density}), values);
    const auto kept = static_cast<double>(decoded.size()) -
                      static_cast<double>(std::count(decoded.begin(), decoded.end(), 0.0f));
    // The threshold comes from a sample of 16384 values, so the count's error is about the square
    // root of the count in the sample.
    const double wanted = density * 16384;
    EXPECT_NEAR(kept / 4, wanted, 4 * std::sqrt(wanted) + 0.03 * wanted) << density;
  }
}

TEST(CodecValues, TopKOfZerosKeepsNothing) {
  std::vector<std::byte> frame;
  const std::vector<float> zeros(5000, 0.0f);
  ASSERT_TRUE(EncodeFrame(*CodecFor("topk:1%+int4"), {zeros, {}}, &frame).ok());
  EXPECT_EQ(frame.size(), kFrameHeaderSize + 12);
}

TEST(CodecValues, TopKSendsAllThatIsNotZeroIfThatIsFew) {
  std::vector<float> values(5000, 0.0f);
  values[77] = 1.0f;
  values[4999] = -2.5f;
  EXPECT_EQ(EncodeDecodeCodecValues("topk:1%", values), values);
}

TEST(CodecValues, TopKIsIdempotentAtItsThreshold) {
  const std::vector<float> once =
      EncodeDecodeCodecValues("topk:1%+int4", HeavyTailed(3000, 5), 0.01f);
  EXPECT_EQ(EncodeDecodeCodecValues("topk:1%+int4", once, 0.01f), once);
}

TEST(CodecValues, CastsAreIdempotent) {
  for (const char* spec : {"none", "fp16", "bf16"}) {
    const std::vector<float> once = EncodeDecodeCodecValues(spec, HeavyTailed(3000, 6));
    EXPECT_EQ(EncodeDecodeCodecValues(spec, once), once) << spec;
  }
}

// Tests that every instruction set gives the same ternary frames. If the share is above 2^-20, sums
// are exact in any order. Below that, the order of the lanes matters.
TEST(CodecValues, TernaryOnEveryInstructionSet) {
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    for (const size_t size : kSizes) {
      for (const float share : {0x1p-30f, 0x1p-20f, 0.25f, 0.5f, 0.75f, 1.0f}) {
        // The values have a range of 2^80, so the order of an inexact sum affects the result.
        std::vector<float> values = HeavyTailed(size, size);
        for (size_t i = 0; i < size; i += 3)
          values[i] *= std::ldexp(1.0f, -static_cast<int>(i % 80));
        EXPECT_EQ(EncodeDecodeCodecValues(absl::StrFormat("ternary:%.12g", share), values),
                  ReferenceTernary(values, share))
            << target << " " << size << " " << share;
      }
    }
  }
  ForceSimdTarget("");
}

TEST(CodecValues, TernarySkipsBlocksOfZeros) {
  std::vector<float> values(256 * 5, 0.0f);
  values[300] = 1.0f;
  values[1279] = -0.25f;
  EXPECT_EQ(EncodeDecodeCodecValues("ternary:0.5", values), values);
}

// Tests that ValidateSparse refuses payloads in which a single field or plane is invalid.
TEST(CodecValues, TopKPayloadsThatLie) {
  const std::vector<float> values = HeavyTailed(500, 8);
  std::vector<std::byte> frame;
  ASSERT_TRUE(EncodeFrame(*CodecFor("topk:5%+int4"), {values, {}}, &frame).ok());
  const std::vector<std::byte> payload(frame.begin() + kFrameHeaderSize, frame.end());
  ASSERT_TRUE(ValidateSparse(payload, 500).ok());
  const auto with = [&](size_t at, uint8_t value) {
    std::vector<std::byte> changed = payload;
    changed[at] = std::byte{value};
    return ValidateSparse(changed, 500);
  };
  EXPECT_FALSE(with(0, 4).ok());   // An unknown value format.
  EXPECT_FALSE(with(1, 32).ok());  // An invalid Rice parameter.
  EXPECT_FALSE(with(1, 200).ok());
  EXPECT_FALSE(with(5, 0xFF).ok());   // A count of billions of entries.
  EXPECT_FALSE(with(8, 0xFF).ok());   // A threshold (tau) that is negative or not finite.
  EXPECT_FALSE(with(11, 0x7F).ok());  // A step (delta) whose multiples overflow.
  EXPECT_FALSE(ValidateSparse(payload, 100).ok());
  EXPECT_FALSE(ValidateSparse({}, 0).ok());
}

TEST(CodecValues, TernaryPayloadsThatLie) {
  // The payload has one value at position 0, all parameters 0, and one byte with `scales` scale
  // steps in unary.
  const auto validate = [](uint8_t scales, uint8_t unary) {
    const uint8_t bytes[] = {0, 0, 1, 0, 0, 0, scales, 0, 0, 0, 1, 0, 0, 0, 0, unary, 1};
    return ValidateTernary(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes), 17), 9);
  };
  // Step 1 gives scale code 1, which is valid.
  EXPECT_TRUE(validate(1, 0b100).ok()) << validate(1, 0b100);
  EXPECT_FALSE(validate(1, 0b1).ok());   // Scale code 0 is invalid.
  EXPECT_FALSE(validate(1, 0b10).ok());  // Scale code -1 is invalid.
  // The payload has two scales for one block.
  EXPECT_FALSE(validate(2, 0b1100).ok());
  EXPECT_FALSE(validate(0, 0b100).ok());
}

}  // namespace
}  // namespace sluice::compress
