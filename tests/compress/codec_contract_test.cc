// SPDX-License-Identifier: Apache-2.0
// Tests the contracts in compress/codec.h and compress/frame.h for every codec of the table.

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "compress/frame_part.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"

namespace sluice::compress {
namespace {

using ::testing::HasSubstr;

constexpr float kCodecContractMaxFloat = std::numeric_limits<float>::max();
constexpr float kCodecContractTiny = std::numeric_limits<float>::denorm_min();

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

class CodecContract : public ::testing::TestWithParam<std::string> {
 protected:
  // Encodes with feedback and checks properties that hold for any finite input. Returns the frame.
  std::vector<std::byte> EncodeChecked(const std::vector<float>& gradient,
                                       std::vector<float>* residual) {
    std::vector<float> acc(gradient.size());
    for (size_t i = 0; i < acc.size(); ++i) acc[i] = gradient[i] + (*residual)[i];
    std::vector<std::byte> frame;
    const absl::Status status = codec_.Encode(gradient, absl::MakeSpan(*residual), &frame);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_LE(frame.size(), codec_.MaxFrame(gradient.size()));
    EXPECT_TRUE(ValidateFrame(frame, gradient.size()).ok())
        << ValidateFrame(frame, gradient.size());
    const std::vector<float> decoded = codec_.Decoded(frame, gradient.size());
    EXPECT_EQ(decoded.size(), acc.size());
    for (size_t i = 0; i < acc.size(); ++i) {
      EXPECT_TRUE(std::isfinite(decoded[i])) << i;
      if (!KeepsResidual()) continue;
      EXPECT_EQ((*residual)[i], acc[i] - decoded[i]) << "element " << i << " of " << acc.size();
    }
    return frame;
  }

  // Returns false for votes and sketches. Votes have no magnitude, so no values are owed. The
  // senders of a sketch do not know which values the receiver recovers.
  bool KeepsResidual() const {
    return codec_.entry().aggregation != Aggregation::kVote &&
           codec_.entry().aggregation != Aggregation::kSketch;
  }

  const LoneCodec codec_{GetParam()};
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
      std::vector<float>(300, kCodecContractMaxFloat),
      std::vector<float>(300, -kCodecContractMaxFloat),
      std::vector<float>(300, kCodecContractTiny),
      {kCodecContractTiny, -kCodecContractTiny, 0.0f, -0.0f, 1e-40f, -1e-39f, 1e-38f},
      {kCodecContractMaxFloat, -kCodecContractMaxFloat, 1.0f, 0.0f, kCodecContractTiny,
       -kCodecContractMaxFloat},
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
  // If a codec is unbiased without feedback and contractive with feedback, the two frames may
  // differ, but not in size.
  const CodecTraits traits = codec_.traits();
  if (traits.unbiased && traits.contractive && !traits.lossless) {
    EXPECT_EQ(a.size(), codec_.Encoded(gradient).size());
    return;
  }
  EXPECT_EQ(a, codec_.Encoded(gradient));
}

TEST_P(CodecContract, AppendsToWhatIsThere) {
  const std::vector<float> gradient = HeavyTailed(500, 5);
  std::vector<std::byte> alone;
  ASSERT_TRUE(codec_.Encode(gradient, {}, &alone).ok());
  std::vector<std::byte> after = {std::byte{7}, std::byte{8}, std::byte{9}};
  ASSERT_TRUE(codec_.Encode(gradient, {}, &after).ok());
  ASSERT_EQ(after.size(), alone.size() + 3);
  EXPECT_EQ(after[0], std::byte{7});
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), after.begin() + 3));
}

TEST_P(CodecContract, DecodingAdds) {
  if (!codec_.decodes_alone()) GTEST_SKIP() << "the codec's frames cannot be decoded alone";
  const std::vector<float> gradient = HeavyTailed(700, 6);
  const std::vector<std::byte> frame = codec_.Encoded(gradient);
  const std::vector<float> once = Decode(frame, gradient.size());
  std::vector<float> sum = HeavyTailed(700, 7);
  std::vector<float> expected = sum;
  for (size_t i = 0; i < sum.size(); ++i) expected[i] += once[i];
  ASSERT_TRUE(DecodeAddFrame(frame, absl::MakeSpan(sum)).ok());
  EXPECT_TRUE(SameBits(sum, expected));
}

TEST_P(CodecContract, AddsScaled) {
  if (!codec_.decodes_alone()) GTEST_SKIP() << "the codec's frames cannot be decoded alone";
  const std::vector<float> gradient = HeavyTailed(700, 6);
  const std::vector<std::byte> frame = codec_.Encoded(gradient);
  const std::vector<float> once = Decode(frame, gradient.size());
  std::vector<float> sum = HeavyTailed(700, 7), expected = sum, scratch;
  for (size_t i = 0; i < sum.size(); ++i) {
    const float scaled = -0.3f * once[i];
    expected[i] += scaled;
  }
  AddScaledValidFrames(frame, -0.3f, &scratch, absl::MakeSpan(sum));
  EXPECT_EQ(sum, expected);
}

TEST_P(CodecContract, PartsAgreeWithTheWholeChunk) {
  if (!codec_.decodes_alone()) GTEST_SKIP() << "the codec's frames cannot be decoded alone";
  const std::vector<float> gradient = HeavyTailed(1500, 6);
  const std::vector<float> other = HeavyTailed(1500, 7);
  const std::vector<std::byte> frame = codec_.Encoded(gradient);
  const std::vector<float> once = Decode(frame, gradient.size());
  std::vector<float> scratch;
  for (ChunkPart part : {WholeChunk(1500), ChunkPart{1500, 256, 512}, ChunkPart{1500, 1280, 220}}) {
    double squares = 0, dot = 0;
    std::vector<float> sum(part.size, 1.0f), expected = sum;
    for (uint32_t i = 0; i < part.size; ++i) {
      const float value = once[part.first + i];
      squares += double{value} * double{value};
      dot += double{value} * double{other[i]};
      const float scaled = 0.5f * value;
      expected[i] += scaled;
    }
    const bool exact = part.whole() || DecodeInParts(frame);
    if (!exact) continue;
    EXPECT_NEAR(SquaresIn(part, frame, &scratch), squares, 1e-9 * squares);
    EXPECT_NEAR(DotWithPart(part, frame, absl::MakeSpan(other).first(part.size), &scratch), dot,
                1e-9 * (squares + 1));
    AddScaledPart(part, frame, 0.5f, &scratch, absl::MakeSpan(sum));
    EXPECT_EQ(sum, expected);
    if (!part.whole()) continue;
    std::vector<float> totals(part.size, 2.0f);
    AddWhereSent(frame, 0.5f, &scratch, absl::MakeSpan(totals));
    for (uint32_t i = 0; i < part.size; ++i) EXPECT_EQ(totals[i], once[i] != 0 ? 2.5f : 2.0f);
  }
}

TEST_P(CodecContract, LosslessCodecsLoseNothing) {
  const std::vector<float> gradient = HeavyTailed(700, 8);
  std::vector<float> residual(gradient.size());
  const std::vector<std::byte> frame = EncodeChecked(gradient, &residual);
  const bool lost = !SameBits(codec_.Decoded(frame, gradient.size()), gradient);
  EXPECT_EQ(codec_.codec().lossless(), !lost);
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
          codec_.Encode(gradient, absl::MakeSpan(residual), &frame, 0, &magnitudes);
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
  gradient[17] = residual[17] = kCodecContractMaxFloat;
  const std::vector<float> before = residual;
  std::vector<std::byte> frame;
  const absl::Status status = codec_.Encode(gradient, absl::MakeSpan(residual), &frame);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("element 17"));
  EXPECT_TRUE(frame.empty());
  EXPECT_TRUE(SameBits(residual, before));
}

TEST_P(CodecContract, EveryTruncationIsAnErrorAndLeavesTheSum) {
  const std::vector<float> gradient = HeavyTailed(300, 11);
  std::vector<float> sum = HeavyTailed(300, 12);
  const std::vector<float> before = sum;
  std::vector<std::byte> frame = codec_.Encoded(gradient);
  for (size_t size = 0; size < frame.size(); ++size) {
    // The copy has the exact size, so that the address sanitizer detects reads after the end.
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
  std::vector<std::byte> frame = codec_.Encoded(gradient);
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    frame[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(DecodeAddFrame(frame, absl::MakeSpan(sum)).ok()) << bit;
    frame[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  EXPECT_TRUE(SameBits(sum, before));
}

TEST_P(CodecContract, PayloadWithoutChecksumIsStillChecked) {
  // A malicious sender can compute a valid checksum, so the payload's own checks matter. If a
  // changed payload is accepted, it must decode to finite values. The unchanged payload must be
  // refused for any other element count.
  const std::vector<float> gradient = HeavyTailed(300, 15);
  const std::vector<std::byte> frame = codec_.Encoded(gradient);
  const std::vector<std::byte> payload(frame.begin() + kFrameHeaderSize, frame.end());
  const FormatEntry& entry = *FindFormat(codec_.codec().format());
  ASSERT_TRUE(entry.validate(payload, 300).ok());
  for (size_t bit = 0; bit < payload.size() * 8; ++bit) {
    std::vector<std::byte> flipped = payload;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    if (!entry.validate(flipped, 300).ok()) continue;
    std::vector<std::byte> sealed;
    AppendFrame(entry.id, 300, flipped, &sealed);
    // A receiver with a state may refuse frames that the format accepts.
    const absl::StatusOr<std::vector<float>> received = codec_.Received(sealed, 300);
    if (!received.ok()) continue;
    for (const float x : *received) EXPECT_TRUE(std::isfinite(x)) << bit;
  }
  std::vector<std::byte> longer = payload;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(entry.validate(longer, 300).ok());
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecContract, ::testing::ValuesIn(TestedSpecs()),
                         [](const auto& spec) { return SpecTestName(spec.param); });

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
}  // namespace sluice::compress
