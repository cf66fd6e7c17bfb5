// SPDX-License-Identifier: Apache-2.0
#include "compress/codec_spec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::compress {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string ErrorOf(absl::string_view text) {
  const absl::StatusOr<CodecSpec> spec = ParseCodecSpec(text);
  return spec.ok() ? absl::StrCat("parsed as ", ToString(*spec))
                   : std::string(spec.status().message());
}

// Returns the column of the caret in the last line, not counting the indent.
size_t CaretOf(absl::string_view text) {
  const std::string error = ErrorOf(text);
  const size_t line = error.rfind('\n');
  if (line == std::string::npos || error.back() != '^') return 999;
  return error.size() - line - 4;
}

TEST(CodecSpec, Parses) {
  EXPECT_EQ(*ParseCodecSpec("none"), CodecSpec{});
  EXPECT_EQ(*ParseCodecSpec("int8/noef"),
            (CodecSpec{.codec = CodecId::kInt8, .compensator = {.id = CompensatorId::kNone}}));
  EXPECT_EQ(*ParseCodecSpec("topk:1%+int4"),
            (CodecSpec{.codec = CodecId::kTopK, .level = 0.01, .values = ValueFormat::kInt4}));
  EXPECT_EQ(*ParseCodecSpec("topk:0.01+fp16"), *ParseCodecSpec("topk:1%"));
  EXPECT_EQ(ParseCodecSpec("topk:1e-3")->level, 0.001);
  EXPECT_EQ(
      *ParseCodecSpec("ternary:0.5/noef"),
      (CodecSpec{
          .codec = CodecId::kTernary, .level = 0.5, .compensator = {.id = CompensatorId::kNone}}));
}

TEST(CodecSpec, PositionsAreCodedInOneWay) {
  EXPECT_EQ(ParseCodecSpec("topk:1%,index=bytes")->options, uint32_t{kIndexBytes});
  EXPECT_EQ(ParseCodecSpec("topk:1%")->options, 0u);
  EXPECT_THAT(ErrorOf("topk:1%,index=bytes,index=rice"), HasSubstr("second index option"));
  EXPECT_EQ(CaretOf("topk:1%,index=bytes,index=rice"), 20u);
  EXPECT_THAT(ErrorOf("topk:1%,index=byte"), HasSubstr("did you mean \"index=bytes\"?"));
  EXPECT_THAT(ErrorOf("randomk:1%,index=bytes"), HasSubstr("unknown option"));
}

TEST(CodecSpec, CanonicalTextReadsBackEqual) {
  const std::pair<const char*, const char*> cases[] = {
      {"none", "none"},
      {"topk:0.01+fp16", "topk:1%"},
      {"topk:0.1%+int4", "topk:0.1%+int4"},
      {"topk:33.3%/noef", "topk:33.3%/noef"},
      {"topk:1", "topk:100%"},
      {"ternary:50%", "ternary:0.5"},
      {"ternary:0.35", "ternary:0.35"},
      {"topk:1%,index=bytes,scope=tensor+int4", "topk:1%,scope=tensor,index=bytes+int4"},
      {"ternary:0.5,index=bitmap", "ternary:0.5,index=bitmap"},
      {"threshold:0.1,index=packed", "threshold:0.1,index=packed"},
      {"topk_exact:1%,index=rice/noef", "topk_exact:1%,index=rice/noef"},
      {"topk_exact:1%,index=rice,scope=block+2bit/ef:0.95",
       "topk_exact:1%,scope=block,index=rice+2bit/ef:0.95"},
      {"int8/ef:0.50", "int8/ef:0.5"},
  };
  for (const auto& [text, canonical] : cases) {
    const CodecSpec spec = *ParseCodecSpec(text);
    EXPECT_EQ(ToString(spec), canonical);
    EXPECT_EQ(*ParseCodecSpec(ToString(spec)), spec);
  }
  for (int i = 1; i <= 1000; ++i) {
    const CodecSpec spec{.codec = CodecId::kTopK, .level = 1.0 / i};
    EXPECT_EQ(*ParseCodecSpec(ToString(spec)), spec) << ToString(spec);
  }
}

TEST(CodecSpec, ErrorsShowTheTextAndPointAtTheCharacter) {
  EXPECT_EQ(ParseCodecSpec("topk:1%+int3").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(ErrorOf("topk:1%+int3"),
              AllOf(HasSubstr("unknown value format \"int3\""), HasSubstr("did you mean \"int4\"?"),
                    EndsWith("\n"
                             "  topk:1%+int3\n"
                             "          ^")));
  EXPECT_EQ(CaretOf("topkk:1%"), 0u);
  EXPECT_EQ(CaretOf("topk:x"), 5u);
  EXPECT_EQ(CaretOf("topk"), 4u);
  EXPECT_EQ(CaretOf("int8:4"), 5u);
  EXPECT_EQ(CaretOf("ternary:0.5+int4"), 11u);
  EXPECT_EQ(CaretOf("topk:1%/nofe"), 8u);
  EXPECT_EQ(CaretOf("topk:1%/noef/noef"), 12u);
  EXPECT_EQ(CaretOf("fp16 "), 0u);
  EXPECT_EQ(CaretOf("none+"), 4u);
}

TEST(CodecSpec, RefusesWhatDoesNotGoTogether) {
  EXPECT_THAT(ErrorOf("randomk:5%,unbiased+int8"), HasSubstr("which is biased"));
  EXPECT_EQ(CaretOf("randomk:5%,unbiased+int8"), 20u);
  EXPECT_TRUE(ParseCodecSpec("randomk:5%,unbiased+fp16").ok());
  EXPECT_THAT(ErrorOf("qsgd:4/ef"), HasSubstr("qsgd cannot be combined with ef"));
  EXPECT_THAT(ErrorOf("signsgd/ef"), HasSubstr("a vote has no magnitude"));
  EXPECT_THAT(ErrorOf("int8/dgc:0.9"), HasSubstr("leave elements out"));
  EXPECT_THAT(ErrorOf("none/ef:0.9"), HasSubstr("leaves nothing out"));
  for (const char* decay : {"0", "1", "-0.5", "x", ""}) {
    EXPECT_THAT(ErrorOf(absl::StrCat("topk:1%/ef:", decay)), HasSubstr("must be above 0"));
  }
}

TEST(CodecSpec, ErrorsNameTheNearest) {
  EXPECT_THAT(ErrorOf("topkk:1%"), HasSubstr("did you mean \"topk\"?"));
  EXPECT_THAT(ErrorOf("ternery:0.5"), HasSubstr("did you mean \"ternary\"?"));
  EXPECT_THAT(ErrorOf("FP16"), HasSubstr("did you mean \"fp16\"?"));
  EXPECT_THAT(ErrorOf("zstandard"), HasSubstr("known: none, fp16, bf16"));
  EXPECT_THAT(ErrorOf("topk:1%/nofe"), HasSubstr("did you mean \"noef\"?"));
}

TEST(CodecSpec, RefusesLevelsOutOfRange) {
  for (const char* text : {"topk:0", "topk:101%", "topk:1.5", "topk:-1%", "topk:nan", "topk:inf",
                           "topk:0x1p-3", "topk:", "topk:%", "topk:1%%", "topk:1e999", "ternary:0",
                           "ternary:2", "topk:1 %", "topk::1%", "topk:1%:2%", ""}) {
    EXPECT_FALSE(ParseCodecSpec(text).ok()) << text;
  }
}

TEST(CodecSpec, SurvivesAnyBytes) {
  EXPECT_THAT(ErrorOf(std::string("topk\0:1%\n\xff", 10)), HasSubstr("topk?:1%??"));
  EXPECT_THAT(ErrorOf(std::string(100000, 'x')), HasSubstr("the limit is 256"));
}

}  // namespace
}  // namespace sluice::compress
