// SPDX-License-Identifier: Apache-2.0
// Compares the codecs sign, onebit and signsgd with their formulas, and tests their bytes and the
// vote.

#include "compress/codecs/sign.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/float_bits.h"
#include "compress/simd/targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"

namespace sluice::compress {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using SignBytes = std::vector<std::byte>;

// Returns heavy-tailed values with some single zeros and some long runs of zeros.
std::vector<float> WithZeros(size_t count, uint64_t seed) {
  std::vector<float> values = HeavyTailed(count, seed);
  for (size_t i = 0; i < count; ++i) {
    if (i % 7 == 3 || (i / 64) % 5 == 2) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
  }
  return values;
}

// Returns the mean of the elements that `chosen` accepts, summed as docs/wire-format.md defines.
template <typename Chosen>
float ReferenceMean(absl::Span<const float> block, Chosen chosen) {
  double lanes[16] = {};
  int count = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    if (!chosen(block[i])) continue;
    lanes[i % 16] += std::abs(block[i]);
    ++count;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return count == 0 ? 0 : FromBfloat(ToBfloat(static_cast<float>(sum / count)));
}

// What a frame without a residual decodes to. For `sign` and `onebit`, also with a residual, unless
// some but at most half of a block's elements are zero.
std::vector<float> Reference(absl::string_view spec, const std::vector<float>& acc) {
  std::vector<float> decoded(acc.size());
  for (size_t from = 0; from < acc.size(); from += 1024) {
    const auto block = absl::MakeConstSpan(acc).subspan(from, 1024);
    float above = 1, below = 1;
    if (absl::StartsWith(spec, "sign/")) {
      above = below = ReferenceMean(block, [](float x) { return x != 0; });
    } else if (absl::StartsWith(spec, "onebit/")) {
      above = ReferenceMean(block, [](float x) { return x > 0; });
      below = ReferenceMean(block, [](float x) { return x < 0; });
    }
    for (size_t i = 0; i < block.size(); ++i) {
      decoded[from + i] = block[i] > 0 ? above : block[i] < 0 ? -below : 0;
    }
  }
  return decoded;
}

class SignOnTarget : public ::testing::TestWithParam<std::string> {
 protected:
  SignOnTarget() { ForceSimdTarget(GetParam()); }
  ~SignOnTarget() override { ForceSimdTarget(""); }
};

TEST_P(SignOnTarget, DecodesToItsFormula) {
  for (const char* spec : {"sign/noef", "onebit/noef", "signsgd"}) {
    for (const size_t count :
         {1u, 2u, 15u, 16u, 17u, 255u, 256u, 257u, 1023u, 1024u, 1025u, 3000u, 8192u}) {
      for (const std::vector<float>& x : {HeavyTailed(count, count), WithZeros(count, count)}) {
        const LoneCodec codec(spec);
        EXPECT_EQ(codec.Decoded(codec.Encoded(x), count), Reference(spec, x))
            << spec << " " << count;
      }
    }
  }
}

TEST_P(SignOnTarget, HugeAndTinyValues) {
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  for (const char* spec : {"sign/noef", "onebit/noef", "signsgd"}) {
    for (const float x : {kMax, -kMax, kTiny, -kTiny, 1e-40f, 0x1p-126f}) {
      std::vector<float> values(1500, x);
      values[7] = 0;
      values[8] = -x / 2;
      const LoneCodec codec(spec);
      EXPECT_EQ(codec.Decoded(codec.Encoded(values), 1500), Reference(spec, values))
          << spec << " " << x;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SignOnTarget, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& param) { return param.param; });

TEST(Sign, ZerosStayZeroAndCostNothingWhereThereAreNone) {
  const size_t count = 4096;
  std::vector<float> x = HeavyTailed(count, 1);
  const LoneCodec codec("sign");
  const size_t full = 4 * 2 + 1 + count / 8;
  EXPECT_EQ(codec.Encoded(x).size(), kFrameHeaderSize + full);
  std::fill(x.begin(), x.begin() + 1024, 0.0f);
  EXPECT_EQ(codec.Encoded(x).size(), kFrameHeaderSize + full)
      << "a whole block of zeros costs nothing";
  std::fill(x.begin() + 1024, x.begin() + 1024 + 513, 0.0f);
  EXPECT_EQ(codec.Encoded(x).size(), kFrameHeaderSize + full + 128);
  // The gradient of these rows is always zero, as for unused rows of an embedding. Their decoded
  // values must stay 0, regardless of the residuals of other rows.
  OneChunk chunk(codec.spec(), count, 1);
  for (uint64_t step = 0; step < 50; ++step) {
    std::vector<float> gradient = HeavyTailed(count, step);
    std::fill(gradient.begin() + 500, gradient.begin() + 1600, 0.0f);
    const std::vector<float> mean = chunk.Step({gradient});
    for (size_t i = 500; i < 1600; ++i) ASSERT_EQ(mean[i], 0) << i;
  }
}

// Encodes with a residual of zeros and returns what the frame decodes to. Appends the residual to
// it, and the frame's size.
std::vector<float> WithResidual(const std::string& spec, const std::vector<float>& x,
                                std::vector<float>* residual, size_t* size) {
  const LoneCodec codec(spec);
  residual->assign(x.size(), 0);
  SignBytes frame;
  EXPECT_TRUE(
      EncodeFrame(codec.codec(), {.gradient = x, .residual = absl::MakeSpan(*residual)}, &frame)
          .ok());
  *size = frame.size();
  return codec.Decoded(frame, x.size());
}

// A block whose first `zeros` elements are 0. The means of `sign` and `onebit` count them. With
// `sign`, those at odd positions are negative.
TEST_P(SignOnTarget, WithAResidualFewZerosOfABlockHaveASign) {
  for (const size_t count : {1024u, 1000u, 96u, 5u, 2048u + 321u}) {
    for (const std::string spec : {"sign", "onebit"}) {
      const size_t in_last = count - (count - 1) / 1024 * 1024, last = count - in_last;
      for (const size_t zeros : {size_t{1}, in_last / 2}) {
        std::vector<float> x = HeavyTailed(count, count);
        std::fill_n(x.begin() + static_cast<ptrdiff_t>(last), zeros, 0.0f);
        const auto block = absl::MakeConstSpan(x).subspan(last);
        const bool one = spec == "sign";
        const float above = ReferenceMean(block, [&](float v) { return one || v >= 0; });
        const float below = ReferenceMean(block, [&](float v) { return one || v < 0; });
        std::vector<float> residual;
        size_t size = 0;
        const std::vector<float> decoded = WithResidual(spec, x, &residual, &size);
        for (size_t i = last; i < count; ++i) {
          const bool negative = x[i] < 0 || (one && x[i] == 0 && i % 2 == 1);
          ASSERT_EQ(decoded[i], negative ? -below : above) << spec << ' ' << count << ' ' << i;
        }
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(residual[i], x[i] - decoded[i]) << i;
        const size_t blocks = (count + 1023) / 1024;
        EXPECT_EQ(size, kFrameHeaderSize + (one ? 2 : 4) * blocks + 1 + (count + 7) / 8);
      }
      std::vector<float> x = HeavyTailed(count, count), residual;
      std::fill_n(x.begin() + static_cast<ptrdiff_t>(last), in_last / 2 + 1, 0.0f);
      size_t size = 0;
      const std::vector<float> decoded = WithResidual(spec, x, &residual, &size);
      EXPECT_EQ(decoded, Reference(spec + "/noef", x))
          << "more than half of the last block is zero";
    }
  }
}

// The residual of a zero goes back to where it came from: on average, the element stays 0.
TEST(Sign, ZerosThatHaveASignAreZeroOnAverage) {
  for (const std::string spec : {"sign", "onebit"}) {
    OneChunk chunk(*ParseCodecSpec(spec), 1024, 1);
    std::vector<double> sums(1024);
    double largest = 0;
    for (uint64_t step = 0; step < 200; ++step) {
      std::vector<float> gradient = HeavyTailed(1024, step);
      std::fill(gradient.begin(), gradient.begin() + 400, 0.0f);
      const std::vector<float> mean = chunk.Step({gradient});
      for (size_t i = 0; i < 400; ++i) {
        sums[i] += mean[i];
        largest = std::max(largest, std::abs(double{mean[i]}));
      }
    }
    for (size_t i = 0; i < 400; ++i) EXPECT_LE(std::abs(sums[i]), 2 * largest) << spec << ' ' << i;
  }
}

// The error must equal the theoretical one: |C(x) - x|^2 = |x|^2 (1 - delta) for each block, where
// delta = |x|_1^2 / (d |x|_2^2).
TEST(Sign, ErrorIsExactlyWhatTheoryGives) {
  const std::vector<float> x = HeavyTailed(1024, 3);
  double l1 = 0, l2 = 0, error = 0;
  const LoneCodec codec("sign");
  const std::vector<float> decoded = codec.Decoded(codec.Encoded(x), 1024);
  for (size_t i = 0; i < 1024; ++i) {
    l1 += std::abs(x[i]);
    l2 += double{x[i]} * x[i];
    error += (double{decoded[i]} - x[i]) * (double{decoded[i]} - x[i]);
  }
  // The scale has 8 significant bits, so its relative error is at most 2^-9. The result depends on
  // the square of that error.
  EXPECT_NEAR(error / l2, 1 - l1 * l1 / 1024 / l2, 1.1 * 0x1p-18 * l1 * l1 / 1024 / l2 + 1e-9);
}

TEST(Sign, TwoMeansAreNeverWorseThanOne) {
  std::vector<float> x = HeavyTailed(4096, 4);
  for (float& value : x) value = value > 0 ? value * 3 : value;
  double errors[2] = {};
  for (size_t k = 0; k < 2; ++k) {
    const LoneCodec codec(k == 0 ? "sign" : "onebit");
    const std::vector<float> decoded = codec.Decoded(codec.Encoded(x), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      errors[k] += (double{decoded[i]} - x[i]) * (double{decoded[i]} - x[i]);
    }
  }
  EXPECT_LT(errors[1], errors[0]);
  EXPECT_GT(errors[1], 0.5 * errors[0]);
}

std::vector<float> Vote(const std::vector<std::vector<float>>& gradients) {
  const size_t count = gradients[0].size();
  const std::unique_ptr<Aggregator> aggregator =
      MakeAggregator({.count = count, .spec = *ParseCodecSpec("signsgd")},
                     static_cast<uint32_t>(gradients.size()));
  std::vector<float> sum(count);
  for (uint32_t rank = 0; rank < gradients.size(); ++rank) {
    SignBytes frame;
    EXPECT_TRUE(EncodeFrame(*CodecFor("signsgd"), {.gradient = gradients[rank]}, &frame).ok());
    EXPECT_TRUE(aggregator->Validate(rank, frame).ok());
    aggregator->Add({{rank, frame}}, absl::MakeSpan(sum));
  }
  aggregator->Close(static_cast<uint32_t>(gradients.size()), absl::MakeSpan(sum));
  return sum;
}

TEST(SignSgd, TheMajorityDecidesAndTiesAreZero) {
  EXPECT_THAT(
      Vote({{5, -5, 0, 0, 1, -1, 0}, {-1e-9f, -1, 0, 1, -1, 1, 0}, {1, 1, 0, 0, 0, -9, -2}}),
      ElementsAre(1, -1, 0, 1, 0, -1, -1));
  EXPECT_THAT(Vote({{2, -3, 0}}), ElementsAre(1, -1, 0));
  EXPECT_THAT(Vote({{2, -3}, {-1, 4}}), ElementsAre(0, 0));
}

TEST(SignSgd, ItsReceiverTakesVotesOnly) {
  const std::vector<float> x = HeavyTailed(1500, 1);
  const std::unique_ptr<Aggregator> aggregator =
      MakeAggregator({.count = 1500, .spec = *ParseCodecSpec("signsgd")}, 2);
  const auto refusal = [&](const char* spec) {
    SignBytes frame;
    EXPECT_TRUE(EncodeFrame(*CodecFor(spec), {.gradient = x}, &frame).ok());
    return std::string(aggregator->Validate(0, frame).message());
  };
  EXPECT_EQ(refusal("signsgd"), "");
  EXPECT_THAT(refusal("sign"), AllOf(HasSubstr("a vote counts 1"), HasSubstr("block 0")));
  EXPECT_THAT(refusal("fp16"), AllOf(HasSubstr("a fp16 frame"), HasSubstr("senders vote")));
}

TEST(SignSgd, HasNothingToFeedBack) {
  EXPECT_THAT(std::string(ParseCodecSpec("signsgd/ef").status().message()),
              HasSubstr("a vote has no magnitude"));
  EXPECT_EQ(ToString(*ParseCodecSpec("signsgd/noef")), "signsgd");
}

std::string Problem(bool onebit, const std::vector<int>& bytes, size_t count) {
  SignBytes payload;
  for (const int byte : bytes) payload.push_back(static_cast<std::byte>(byte));
  return std::string(
      (onebit ? ValidateOneBit(payload, count) : ValidateSign(payload, count)).message());
}

TEST(Sign, RefusesWhatNoEncoderWrites) {
  // The scale is 1, there are no zeros, and the signs are - + +.
  EXPECT_EQ(Problem(false, {0x80, 0x3F, 0, 0b001}, 3), "");
  EXPECT_EQ(Problem(false, {0x80, 0x3F, 1, 0b001, 0b010}, 3), "");
  EXPECT_EQ(Problem(false, {0, 0, 0, 0}, 3), "");
  EXPECT_EQ(Problem(false, {}, 0), "");
  EXPECT_THAT(Problem(false, {0x80, 0x3F, 0}, 3), HasSubstr("has 3 bytes, should have 4"));
  EXPECT_THAT(Problem(false, {0x80, 0x3F, 1, 0}, 3), HasSubstr("should have 1 bytes of zeros"));
  EXPECT_THAT(Problem(false, {0x80, 0x3F, 0, 0, 0}, 3), HasSubstr("has 5 bytes, should have 4"));
  EXPECT_THAT(Problem(false, {0x80, 0x3F, 2, 0}, 3), HasSubstr("padding is not zero"));
  EXPECT_THAT(Problem(false, {0x80, 0x3F, 0, 8}, 3), HasSubstr("bits after its last element"));
  EXPECT_THAT(Problem(false, {0x80, 0x3F, 1, 0, 9}, 3), HasSubstr("bits after its last element"));
  EXPECT_THAT(Problem(false, {0x80, 0x3F, 1, 2, 2}, 3), HasSubstr("a negative zero"));
  EXPECT_THAT(Problem(false, {0x80, 0x3F, 1, 0, 0}, 3), HasSubstr("bits are all equal"));
  EXPECT_THAT(Problem(false, {0x80, 0x3F, 1, 0, 7}, 3), HasSubstr("bits are all equal"));
  EXPECT_THAT(Problem(false, {0, 0, 0, 1}, 3), HasSubstr("elements without a scale"));
  EXPECT_THAT(Problem(false, {0, 0, 1, 0, 1}, 3), HasSubstr("elements without a scale"));
  EXPECT_THAT(Problem(false, {0x80, 0x7F, 0, 1}, 3), HasSubstr("negative or not finite"));
  EXPECT_THAT(Problem(false, {0x80, 0xBF, 0, 1}, 3), HasSubstr("negative or not finite"));
}

TEST(OneBit, RefusesWhatNoEncoderWrites) {
  EXPECT_EQ(Problem(true, {0x80, 0x3F, 0x80, 0x3F, 0, 0b001}, 3), "");
  EXPECT_EQ(Problem(true, {0x80, 0x3F, 0, 0, 0, 0}, 3), "");
  EXPECT_EQ(Problem(true, {0, 0, 0x80, 0x3F, 1, 0b110, 0b001}, 3), "");
  EXPECT_EQ(Problem(true, {0, 0, 0, 0, 0, 0}, 3), "");
  const char* const without = "or a scale without elements";
  EXPECT_THAT(Problem(true, {0x80, 0x3F, 0x80, 0x3F, 0, 0}, 3), HasSubstr(without));
  EXPECT_THAT(Problem(true, {0x80, 0x3F, 0x80, 0x3F, 0, 7}, 3), HasSubstr(without));
  EXPECT_THAT(Problem(true, {0x80, 0x3F, 0, 0, 0, 1}, 3), HasSubstr(without));
  EXPECT_THAT(Problem(true, {0, 0, 0x80, 0x3F, 0, 1}, 3), HasSubstr(without));
  EXPECT_THAT(Problem(true, {0, 0, 0, 0, 1, 0, 1}, 3), HasSubstr(without));
}

}  // namespace
}  // namespace sluice::compress
