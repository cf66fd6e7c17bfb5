// SPDX-License-Identifier: Apache-2.0
// Tests that every part of a spec has an effect, and that parts without an effect are refused.

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/one_chunk.h"

namespace sluice::compress {
namespace {

using ::testing::HasSubstr;

constexpr size_t kSpecOptionCount = 3072;
// Two tiles of scope=block.
constexpr uint32_t kSpecOptionRows = 24;
constexpr uint64_t kSpecOptionSteps = 6;

// Returns all bytes that a sender of two tensors sends in kSpecOptionSteps steps. One tensor has
// larger gradients than the other.
std::vector<std::byte> Sent(const CodecSpec& spec) {
  std::vector<ChunkConfig> configs;
  for (uint32_t id = 0; id < 2; ++id) {
    configs.push_back(
        {.count = kSpecOptionCount, .spec = spec, .id = id, .tensor = id, .rows = kSpecOptionRows});
  }
  Compressor compressor(configs, {.seed = 3, .sender = 1});
  std::vector<std::byte> sent;
  for (uint64_t step = 1; step <= kSpecOptionSteps; ++step) {
    for (uint32_t id = 0; id < 2; ++id) {
      // The gradients of the third step are large, so that values are clipped.
      const float scale = (id == 0 ? 1e-3f : 1e-2f) * (step == 3 ? 50.0f : 1.0f);
      EXPECT_TRUE(
          compressor.Encode(id, step, HeavyTailed(kSpecOptionCount, step * 2 + id, scale), &sent)
              .ok());
    }
    compressor.EndStep(step);
  }
  return sent;
}

// Returns levels at which the codec's options can have an effect. There are several, because the
// coding of positions depends on the number of kept elements.
std::vector<std::string> SpecOptionLevels(const CodecEntry& entry) {
  if (entry.level == LevelKind::kShare) return {"0.1%", "1%", "10%", "30%", "70%"};
  if (entry.level == LevelKind::kPositive) return {"1e-3", "1e-2", "0.1", "1", "3", "10"};
  if (entry.level == LevelKind::kNone) return {""};
  const absl::string_view example = entry.example;
  const absl::string_view rest = example.substr(example.find(':') + 1);
  return {std::string(rest.substr(0, rest.find_first_of("+,/")))};
}

CodecSpec SpecAt(const CodecEntry& entry, const std::string& level) {
  return *ParseCodecSpec(absl::StrCat(entry.name, level.empty() ? "" : ":", level));
}

class SpecOption : public ::testing::TestWithParam<CodecId> {};

TEST_P(SpecOption, EveryOptionChangesWhatIsSent) {
  const CodecEntry& entry = FindCodec(GetParam());
  for (uint32_t option = 1; option != 0; option <<= 1) {
    if ((entry.options & option) == 0) continue;
    int changed = 0;
    for (const std::string& level : SpecOptionLevels(entry)) {
      // This compensator can be combined with all options.
      CodecSpec without = SpecAt(entry, level);
      without.compensator = {.id = CompensatorId::kNone};
      CodecSpec with = without;
      with.options |= option;
      ASSERT_TRUE(ParseCodecSpec(ToString(with)).ok()) << ToString(with);
      changed += Sent(with) != Sent(without) ? 1 : 0;
    }
    EXPECT_GT(changed, 0) << entry.name << " sends the same whether option " << option
                          << " is set or not";
  }
}

TEST_P(SpecOption, EveryValueFormatChangesWhatIsSent) {
  const CodecEntry& entry = FindCodec(GetParam());
  if (!entry.values) GTEST_SKIP() << "the codec takes no value format";
  std::vector<std::vector<std::byte>> all;
  for (const ValueFormat values : {ValueFormat::kFp16, ValueFormat::kInt4, ValueFormat::kInt8,
                                   ValueFormat::kSign, ValueFormat::kTwoBit}) {
    CodecSpec spec = SpecAt(entry, SpecOptionLevels(entry).back());
    spec.values = values;
    all.push_back(Sent(spec));
    for (size_t i = 0; i + 1 < all.size(); ++i) EXPECT_NE(all[i], all.back()) << ToString(spec);
  }
}

TEST_P(SpecOption, EveryArgumentOfDgcChangesWhatIsSent) {
  const CodecEntry& entry = FindCodec(GetParam());
  if (!CompensatorRefusal(entry.id, 0, CompensatorId::kDgc).empty())
    GTEST_SKIP() << "the codec does not support dgc";
  CodecSpec plain = *ParseCodecSpec(entry.example);
  plain.compensator = {.id = CompensatorId::kDgc, .level = 0.5};
  const std::vector<std::byte> sent = Sent(plain);
  CodecSpec other = plain;
  other.compensator.level = 0.9;
  EXPECT_NE(Sent(other), sent);
  other = plain;
  other.compensator.clip = 2;
  EXPECT_NE(Sent(other), sent);
  other = plain;
  other.compensator.warmup = 4;
  if (ParseCodecSpec(ToString(other)).ok()) {
    EXPECT_NE(Sent(other), sent);
  }
}

TEST_P(SpecOption, TheDecayOfFeedbackChangesWhatIsSent) {
  const CodecEntry& entry = FindCodec(GetParam());
  if (!CompensatorRefusal(entry.id, 0, CompensatorId::kErrorFeedback).empty()) {
    GTEST_SKIP() << "the codec does not support feedback";
  }
  CodecSpec plain = *ParseCodecSpec(entry.example);
  plain.compensator = {.id = CompensatorId::kErrorFeedback};
  CodecSpec decaying = plain;
  decaying.compensator.level = 0.5;
  if (ParseCodecSpec(ToString(decaying)).ok()) {
    EXPECT_NE(Sent(decaying), Sent(plain));
  } else {
    EXPECT_TRUE(TraitsOf(entry.id, 0).lossless);
  }
}

std::vector<CodecId> SpecOptionCodecIds() {
  std::vector<CodecId> ids;
  for (const CodecEntry& entry : Codecs()) ids.push_back(entry.id);
  return ids;
}

INSTANTIATE_TEST_SUITE_P(Codecs, SpecOption, ::testing::ValuesIn(SpecOptionCodecIds()),
                         [](const auto& id) {
                           return SpecTestName(std::string(FindCodec(id.param).name));
                         });

TEST(SpecOptions, WarmupIsRefusedWhereItDoesNothing) {
  for (const char* spec : {"blocktopk:64/dgc:0.9,warmup=10", "randomk:5%/dgc:0.9,warmup=10",
                           "ternary:0.5/dgc:0.9,warmup=10", "threshold:0.1/dgc:0.9,warmup=10"}) {
    EXPECT_THAT(std::string(ParseCodecSpec(spec).status().message()),
                HasSubstr("has no such threshold; leave warmup out"))
        << spec;
  }
  for (const char* spec : {"topk:25%/dgc:0.9,warmup=10", "topk:100%/dgc:0.9,warmup=10"}) {
    EXPECT_THAT(std::string(ParseCodecSpec(spec).status().message()),
                HasSubstr("begins with a density of 25%"))
        << spec;
  }
  EXPECT_TRUE(ParseCodecSpec("topk:24%/dgc:0.9,warmup=10").ok());
}

// The receiver must refuse the frame of exponents that it publishes itself: such a frame is not a
// contribution, even though it would add nothing.
TEST(Receivers, TakeNoExponents) {
  std::vector<std::byte> frame;
  AppendFrame(FormatId::kExponents, kSpecOptionCount,
              std::vector<std::byte>(kSpecOptionCount / 256), &frame);
  ASSERT_TRUE(ValidateFrame(frame, kSpecOptionCount).ok());
  for (const CodecEntry& entry : Codecs()) {
    const ChunkConfig config{
        .count = kSpecOptionCount, .spec = *ParseCodecSpec(entry.example), .rows = kSpecOptionRows};
    EXPECT_FALSE(MakeAggregator(config, 2)->Validate(0, frame).ok()) << entry.name;
  }
}

// Values below the smallest power of two must become either this power or zero. This is the only
// case in which the error of natural exceeds its input.
TEST(Natural, ValuesBelowTheLeastPowerBecomeItOrZero) {
  const LoneCodec codec("natural/ef");
  const std::vector<float> x(kSpecOptionCount, 0x1p-128f);
  const std::vector<float> decoded =
      codec.Decoded(codec.Encoded(x, {.own = 1, .shared = 2}), kSpecOptionCount);
  size_t up = 0;
  for (const float value : decoded) {
    EXPECT_TRUE(value == 0 || value == 0x1p-126f) << value;
    up += value != 0 ? 1 : 0;
  }
  // A quarter of the values must be rounded up.
  EXPECT_NEAR(static_cast<double>(up), kSpecOptionCount / 4.0,
              5 * std::sqrt(kSpecOptionCount * 0.25 * 0.75));
}

}  // namespace
}  // namespace sluice::compress
