// SPDX-License-Identifier: Apache-2.0
// Tests that encoding and decoding reproduce the frames in tests/golden byte for byte.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/compress/golden_file.h"
#include "tests/compress/one_chunk.h"

namespace sluice::compress {
namespace {

std::string Hex(absl::Span<const std::byte> bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// Checks a codec that has state: encodes `before`, then checks the next frame, without feedback.
void CheckSecondFrame(const std::string& spec, absl::Span<const float> before,
                      absl::Span<const float> gradient, const std::string& wanted,
                      absl::Span<const float> decoded) {
  const std::unique_ptr<Codec> codec = CodecFor(spec);
  std::vector<float> state(codec->StateSize(gradient.size(), 0));
  const std::unique_ptr<Aggregator> receiver =
      MakeAggregator({.count = gradient.size(), .spec = *ParseCodecSpec(spec)}, 1);
  std::vector<std::byte> frame;
  std::vector<float> sum;
  for (const absl::Span<const float> values : {before, gradient}) {
    frame.clear();
    ASSERT_TRUE(
        EncodeFrame(*codec, {.gradient = values, .state = absl::MakeSpan(state)}, &frame).ok());
    ASSERT_TRUE(receiver->Validate(0, frame).ok());
    sum.assign(gradient.size(), 0.0f);
    receiver->Add({{0, frame}}, absl::MakeSpan(sum));
    receiver->Close(1, absl::MakeSpan(sum));
  }
  EXPECT_EQ(Hex(frame), wanted);
  EXPECT_EQ(absl::MakeConstSpan(sum), decoded);
}

class Golden : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(Golden, EncodesAndDecodesByteForByte) {
  std::map<std::string, std::string> golden = ReadGolden(GetParam());
  const std::string spec(absl::StripAsciiWhitespace(golden["spec"]));
  ASSERT_TRUE(ParseCodecSpec(spec).ok()) << spec;
  const std::vector<float> gradient = Floats(golden["gradient"]);
  const std::vector<float> threshold = Floats(golden["threshold"]);
  uint32_t rows = 0;
  EXPECT_TRUE(!golden.contains("rows") || absl::SimpleAtoi(golden["rows"], &rows));
  const std::string wanted = absl::StrReplaceAll(golden["frame"], {{" ", ""}});

  std::vector<float> residual(gradient.size());
  std::vector<std::byte> frame;
  // Feedback is used if the spec includes it, because some codecs encode differently with feedback.
  const bool feedback = ParseCodecSpec(spec)->error_feedback();
  if (golden.contains("before")) {
    CheckSecondFrame(spec, Floats(golden["before"]), gradient, wanted, Floats(golden["decoded"]));
    return;
  }
  ASSERT_TRUE(EncodeFrame(*CodecFor(spec),
                          {.gradient = gradient,
                           .residual = feedback ? absl::MakeSpan(residual) : absl::Span<float>(),
                           .threshold = threshold.at(0),
                           .rows = rows},
                          &frame)
                  .ok());
  EXPECT_EQ(Hex(frame), wanted);

  const std::string bytes = absl::HexStringToBytes(wanted);
  const std::vector<float> decoded = LoneCodec(spec).Decoded(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()),
      gradient.size());
  EXPECT_EQ(decoded, Floats(golden["decoded"]));
}

std::vector<std::filesystem::path> GoldenFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(SLUICE_GOLDEN_DIR)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string TestName(const ::testing::TestParamInfo<std::filesystem::path>& golden) {
  return golden.param.stem().string();
}

INSTANTIATE_TEST_SUITE_P(Frames, Golden, ::testing::ValuesIn(GoldenFiles()), TestName);

TEST(GoldenFiles, ThereIsOneForEachCodec) {
  for (const CodecEntry& codec : Codecs()) {
    bool found = false;
    for (const std::filesystem::path& file : GoldenFiles()) {
      const absl::StatusOr<CodecSpec> spec =
          ParseCodecSpec(absl::StripAsciiWhitespace(ReadGolden(file)["spec"]));
      found = found || (spec.ok() && spec->codec == codec.id);
    }
    EXPECT_TRUE(found) << std::string(codec.name);
  }
}

}  // namespace
}  // namespace sluice::compress
