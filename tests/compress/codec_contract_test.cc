// The promises of compress/codec.h and compress/frame.h, for every codec of the table.

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr float kMaxFloat = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

class CodecContract : public ::testing::TestWithParam<std::string> {
 protected:
  // Encodes with feedback and checks what must hold for any finite input; returns the frame.
  std::vector<std::byte> EncodeChecked(const std::vector<float>& gradient,
                                       std::vector<float>* residual) {
    std::vector<float> acc(gradient.size());
    for (size_t i = 0; i < acc.size(); ++i) acc[i] = gradient[i] + (*residual)[i];
    std::vector<std::byte> frame;
    const absl::Status status = EncodeFrame(*codec_, {gradient, absl::MakeSpan(*residual)}, &frame);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_LE(frame.size(), MaxFrameSize(*codec_, gradient.size()));
    EXPECT_TRUE(ValidateFrame(frame, gradient.size()).ok())
        << ValidateFrame(frame, gradient.size());
    std::vector<float> decoded(gradient.size(), -0.0f);
    EXPECT_TRUE(DecodeAddFrame(frame, absl::MakeSpan(decoded)).ok());
    for (size_t i = 0; i < acc.size(); ++i) {
      EXPECT_TRUE(std::isfinite(decoded[i])) << i;
      EXPECT_EQ((*residual)[i], acc[i] - decoded[i]) << "element " << i << " of " << acc.size();
    }
    return frame;
  }

  const std::unique_ptr<Codec> codec_ = CodecFor(GetParam());
};

TEST_P(CodecContract, ResidualIsExactlyWhatIsNotDecodedAtEveryLength) {
  for (size_t count = 0; count <= 2 * 256 + 1; ++count) {
    const std::vector<float> gradient = HeavyTailed(count, count);
    std::vector<float> residual = HeavyTailed(count, count + 1000, 3e-4f);
    EncodeChecked(gradient, &residual);
  }
  for (const size_t count : {1023u, 1024u, 1025u, 2047u, 5000u, 65537u}) {
    const std::vector<float> gradient = HeavyTailed(count, count);
    std::vector<float> residual(count);
    EncodeChecked(gradient, &residual);
  }
}

TEST_P(CodecContract, SpecialValues) {
  const std::vector<std::vector<float>> inputs = {
      std::vector<float>(300, 0.0f),
      std::vector<float>(300, -0.0f),
      std::vector<float>(300, 1.0f),
      std::vector<float>(300, -1e-3f),
      std::vector<float>(300, kMaxFloat),
      std::vector<float>(300, -kMaxFloat),
      std::vector<float>(300, kTiny),
      {kTiny, -kTiny, 0.0f, -0.0f, 1e-40f, -1e-39f, 1e-38f},
      {kMaxFloat, -kMaxFloat, 1.0f, 0.0f, kTiny, -kMaxFloat},
      {65504.0f, 65505.0f, 65519.9f, 65520.0f, -70000.0f, 6e-8f, 2.9e-8f, 1e-5f},
      {1e-30f, 0, 0, 0},
  };
  for (const std::vector<float>& gradient : inputs) {
    std::vector<float> residual(gradient.size());
    EncodeChecked(gradient, &residual);
  }
}

TEST_P(CodecContract, IsDeterministicAndDoesNotNeedTheResidual) {
  const std::vector<float> gradient = HeavyTailed(3000, 5);
  std::vector<float> first(gradient.size()), second(gradient.size());
  const std::vector<std::byte> a = EncodeChecked(gradient, &first);
  const std::vector<std::byte> b = EncodeChecked(gradient, &second);
  EXPECT_EQ(a, b);
  EXPECT_TRUE(SameBits(first, second));
  std::vector<std::byte> without;
  ASSERT_TRUE(EncodeFrame(*codec_, {gradient, {}}, &without).ok());
  EXPECT_EQ(a, without);
}

TEST_P(CodecContract, AppendsToWhatIsThere) {
  const std::vector<float> gradient = HeavyTailed(500, 5);
  std::vector<std::byte> alone, after = {std::byte{7}, std::byte{8}, std::byte{9}};
  ASSERT_TRUE(EncodeFrame(*codec_, {gradient, {}}, &alone).ok());
  ASSERT_TRUE(EncodeFrame(*codec_, {gradient, {}}, &after).ok());
  ASSERT_EQ(after.size(), alone.size() + 3);
  EXPECT_EQ(after[0], std::byte{7});
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), after.begin() + 3));
}

TEST_P(CodecContract, DecodingAdds) {
  const std::vector<float> gradient = HeavyTailed(700, 6);
  std::vector<std::byte> frame;
  ASSERT_TRUE(EncodeFrame(*codec_, {gradient, {}}, &frame).ok());
  const std::vector<float> once = Decode(frame, gradient.size());
  std::vector<float> sum = HeavyTailed(700, 7);
  std::vector<float> expected = sum;
  for (size_t i = 0; i < sum.size(); ++i) expected[i] += once[i];
  ASSERT_TRUE(DecodeAddFrame(frame, absl::MakeSpan(sum)).ok());
  EXPECT_TRUE(SameBits(sum, expected));
}

TEST_P(CodecContract, LosslessCodecsLoseNothing) {
  const std::vector<float> gradient = HeavyTailed(700, 8);
  std::vector<float> residual(gradient.size());
  const std::vector<std::byte> frame = EncodeChecked(gradient, &residual);
  const bool lost = !SameBits(Decode(frame, gradient.size()), gradient);
  EXPECT_TRUE(!codec_->lossless() || !lost);
}

TEST_P(CodecContract, RefusesWhatIsNotFiniteAndChangesNothing) {
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (const float value : bad) {
    for (const size_t at : {0u, 255u, 256u, 599u}) {
      std::vector<float> gradient = HeavyTailed(600, 9);
      gradient[at] = value;
      std::vector<float> residual = HeavyTailed(600, 10);
      const std::vector<float> before = residual;
      MagnitudeHistogram magnitudes;
      std::vector<std::byte> frame = {std::byte{1}};
      const absl::Status status =
          EncodeFrame(*codec_, {gradient, absl::MakeSpan(residual), 0, &magnitudes}, &frame);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("element ", at)));
      EXPECT_EQ(frame.size(), 1u);
      EXPECT_TRUE(SameBits(residual, before));
      EXPECT_EQ(magnitudes.total(), 0u);
    }
  }
}

TEST_P(CodecContract, RefusesOverflowOfGradientPlusResidual) {
  std::vector<float> gradient(300, 0.0f), residual(300, 0.0f);
  gradient[17] = residual[17] = kMaxFloat;
  const std::vector<float> before = residual;
  std::vector<std::byte> frame;
  const absl::Status status = EncodeFrame(*codec_, {gradient, absl::MakeSpan(residual)}, &frame);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("element 17"));
  EXPECT_TRUE(frame.empty());
  EXPECT_TRUE(SameBits(residual, before));
}

TEST_P(CodecContract, EveryTruncationIsAnErrorAndLeavesTheSum) {
  const std::vector<float> gradient = HeavyTailed(300, 11);
  std::vector<float> sum = HeavyTailed(300, 12);
  const std::vector<float> before = sum;
  std::vector<std::byte> frame;
  ASSERT_TRUE(EncodeFrame(*codec_, {gradient, {}}, &frame).ok());
  for (size_t size = 0; size < frame.size(); ++size) {
    // A copy of its own size, so that the address sanitizer sees a read past the end.
    const std::vector<std::byte> cut(frame.begin(), frame.begin() + size);
    EXPECT_FALSE(DecodeAddFrame(cut, absl::MakeSpan(sum)).ok()) << size;
  }
  frame.push_back(std::byte{0});
  EXPECT_FALSE(DecodeAddFrame(frame, absl::MakeSpan(sum)).ok());
  EXPECT_TRUE(SameBits(sum, before));
}

TEST_P(CodecContract, EveryFlippedBitIsAnErrorAndLeavesTheSum) {
  const std::vector<float> gradient = HeavyTailed(300, 13);
  std::vector<float> sum = HeavyTailed(300, 14);
  const std::vector<float> before = sum;
  std::vector<std::byte> frame;
  ASSERT_TRUE(EncodeFrame(*codec_, {gradient, {}}, &frame).ok());
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    frame[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(DecodeAddFrame(frame, absl::MakeSpan(sum)).ok()) << bit;
    frame[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  EXPECT_TRUE(SameBits(sum, before));
}

TEST_P(CodecContract, PayloadWithoutChecksumIsStillChecked) {
  // What a frame's checksum would not catch: a sender that means harm. Whatever is accepted must
  // decode to finite values, and the exact payload to other sizes must not.
  const std::vector<float> gradient = HeavyTailed(300, 15);
  std::vector<std::byte> payload;
  ASSERT_TRUE(codec_->Encode({gradient, {}}, &payload).ok());
  const FormatEntry& entry = *FindFormat(codec_->format());
  ASSERT_TRUE(entry.validate(payload, 300).ok());
  for (size_t bit = 0; bit < payload.size() * 8; ++bit) {
    std::vector<std::byte> flipped = payload;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    if (!entry.validate(flipped, 300).ok()) continue;
    std::vector<float> sum(300, 0.0f);
    entry.decode_add(flipped, absl::MakeSpan(sum));
    for (const float x : sum) EXPECT_TRUE(std::isfinite(x)) << bit;
  }
  std::vector<std::byte> longer = payload;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(entry.validate(longer, 300).ok());
}

TEST_P(CodecContract, ScalesWithPowersOfTwo) {
  if (GetParam() == "fp16" || GetParam() == "topk:5%" || GetParam() == "topk:0.1%" ||
      GetParam() == "topk:100%") {
    GTEST_SKIP() << "halves have a narrow range";
  }
  const std::vector<float> gradient = HeavyTailed(1500, 16, 1.0f);
  std::vector<float> scaled = gradient;
  for (float& x : scaled) x *= 1024;
  std::vector<std::byte> a, b;
  ASSERT_TRUE(EncodeFrame(*codec_, {gradient, {}}, &a).ok());
  ASSERT_TRUE(EncodeFrame(*codec_, {scaled, {}}, &b).ok());
  const std::vector<float> decoded = Decode(a, gradient.size());
  const std::vector<float> decoded_scaled = Decode(b, gradient.size());
  for (size_t i = 0; i < decoded.size(); ++i) {
    EXPECT_EQ(decoded[i] * 1024, decoded_scaled[i]) << i;
  }
}

TEST_P(CodecContract, SignsAreSymmetric) {
  const std::vector<float> gradient = HeavyTailed(1500, 17);
  std::vector<float> negated = gradient;
  for (float& x : negated) x = -x;
  std::vector<std::byte> a, b;
  ASSERT_TRUE(EncodeFrame(*codec_, {gradient, {}}, &a).ok());
  ASSERT_TRUE(EncodeFrame(*codec_, {negated, {}}, &b).ok());
  const std::vector<float> decoded = Decode(a, gradient.size());
  const std::vector<float> decoded_negated = Decode(b, gradient.size());
  for (size_t i = 0; i < decoded.size(); ++i) EXPECT_EQ(decoded[i], -decoded_negated[i]) << i;
}

TEST_P(CodecContract, FeedbackDeliversEverythingOverManySteps) {
  const size_t count = 2000;
  std::vector<float> residual(count);
  std::vector<double> sent(count), wanted(count);
  for (uint64_t step = 0; step < 60; ++step) {
    const std::vector<float> gradient = HeavyTailed(count, 100 + step);
    const std::vector<std::byte> frame = EncodeChecked(gradient, &residual);
    const std::vector<float> decoded = Decode(frame, count);
    for (size_t i = 0; i < count; ++i) {
      sent[i] += decoded[i];
      wanted[i] += gradient[i];
    }
  }
  for (size_t i = 0; i < count; ++i) EXPECT_NEAR(sent[i] + residual[i], wanted[i], 1e-5) << i;
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecContract, ::testing::ValuesIn(TestedSpecs()), TestName);

TEST(CodecTable, IdsAndNamesAreUniqueAndExamplesWork) {
  for (size_t i = 0; i < Codecs().size(); ++i) {
    const CodecEntry& entry = Codecs()[i];
    EXPECT_EQ(&FindCodec(entry.id), &entry);
    const absl::StatusOr<CodecSpec> spec = ParseCodecSpec(entry.example);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->codec, entry.id);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(Codecs()[j].name, entry.name);
  }
  EXPECT_EQ(FindFormat(static_cast<FormatId>(200)), nullptr);
}

}  // namespace
}  // namespace sluice
