#include "cli/codec_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sluice {
namespace {

using ::testing::HasSubstr;

CodecReport Measured(std::vector<std::string> specs, uint32_t steps = 3) {
  absl::StatusOr<CodecReport> report = MeasureCodecs({.model = "resnet50",
                                                      .specs = std::move(specs),
                                                      .elements = 300'000,
                                                      .steps = steps,
                                                      .done = {}});
  EXPECT_TRUE(report.ok()) << report.status();
  return *std::move(report);
}

TEST(CodecReportTest, CountsAllBytes) {
  const CodecReport report = Measured({"none", "fp16"});
  const auto elements = static_cast<double>(report.elements);
  // 161 tensors of one or more chunks, each with a header of 20 bytes.
  EXPECT_GE(report.rows[0].bytes, 4 * elements + 161 * 20);
  EXPECT_LE(report.rows[0].bytes, 4 * elements + 220 * 20);
  EXPECT_EQ(report.rows[0].nmse_gradient, 0);
  EXPECT_NEAR(report.rows[1].ratio, 2, 0.03);
  EXPECT_GT(report.rows[1].nmse_gradient, 1e-9);
  EXPECT_LT(report.rows[1].nmse_gradient, 1e-6);
}

TEST(CodecReportTest, ErrorsAreThoseOfTraining) {
  const CodecReport report = Measured({"int8", "topk:1%+int4", "ternary:0.5"}, 8);
  EXPECT_GT(report.rows[0].nmse_gradient, 0.6e-4);
  EXPECT_LT(report.rows[0].nmse_gradient, 3e-4);
  EXPECT_GT(report.rows[1].nmse_gradient, 0.6);
  EXPECT_LT(report.rows[1].nmse_gradient, 0.82);
  // Feedback fills all up to the threshold: selecting gets harder.
  EXPECT_GT(report.rows[1].nmse_accumulator, report.rows[1].nmse_gradient);
  EXPECT_GT(report.rows[2].nmse_gradient, 0.4);
  EXPECT_LT(report.rows[2].nmse_gradient, 0.75);
}

TEST(CodecReportTest, SizesAndErrorsAreRepeatable) {
  const CodecReport one = Measured(UsualReportSpecs(), 2), again = Measured(UsualReportSpecs(), 2);
  ASSERT_EQ(one.rows.size(), again.rows.size());
  for (size_t i = 0; i < one.rows.size(); ++i) {
    EXPECT_EQ(one.rows[i].bytes, again.rows[i].bytes) << one.rows[i].spec;
    EXPECT_EQ(one.rows[i].nmse_accumulator, again.rows[i].nmse_accumulator) << one.rows[i].spec;
    EXPECT_GT(one.rows[i].encode_ns, 0) << one.rows[i].spec;
    EXPECT_GT(one.rows[i].add_ns, 0) << one.rows[i].spec;
  }
}

TEST(CodecReportTest, JsonHasItsKeys) {
  const CodecReport report = Measured({"topk:1%+int4"});
  const nlohmann::json json = nlohmann::json::parse(CodecReportJson(report));
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("model"), "resnet50");
  EXPECT_EQ(json.at("elements"), report.elements);
  EXPECT_EQ(json.at("seed"), 1);
  ASSERT_EQ(json.at("codecs").size(), 1u);
  for (const char* key :
       {"bytes_first_step", "bytes_per_step", "ratio", "bits_per_element", "nmse_gradient",
        "nmse_accumulator", "encode_ns_per_element", "encode_gb_per_s", "encode_stream_share",
        "add_ns_per_element", "add_gb_per_s", "add_stream_share"}) {
    EXPECT_GT(json.at("codecs")[0].at(key).get<double>(), 0) << key;
  }
  EXPECT_EQ(json.at("codecs")[0].at("spec"), "topk:1%+int4");
  EXPECT_THAT(FormatCodecReport(report), HasSubstr("topk:1%+int4"));
}

TEST(CodecReportTest, RefusesUnknownNames) {
  EXPECT_THAT(MeasureCodecs({.model = "bert-bas", .specs = {}, .done = {}}).status().message(),
              HasSubstr("did you mean `bert-base`?"));
  EXPECT_THAT(MeasureCodecs({.specs = {"ternry:0.5"}, .done = {}}).status().message(),
              HasSubstr("ternary"));
  EXPECT_FALSE(MeasureCodecs({.specs = {}, .steps = 0, .done = {}}).ok());
}

}  // namespace
}  // namespace sluice
