// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/codec_report.h"

#include <cstdio>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;

CodecReport Measured(std::vector<std::string> specs, uint32_t steps = 3, uint32_t settle = 0) {
  absl::StatusOr<CodecReport> report = MeasureCodecs({.model = "resnet50",
                                                      .table_path = "",
                                                      .specs = std::move(specs),
                                                      .elements = 300'000,
                                                      .steps = steps,
                                                      .settle = settle,
                                                      .done = {}});
  EXPECT_TRUE(report.ok()) << report.status();
  return *std::move(report);
}

TEST(CodecReportTest, CountsAllBytes) {
  const CodecReport report = Measured({"none", "fp16"});
  const auto elements = static_cast<double>(report.elements);
  // The model has 161 tensors of one or more chunks. Each chunk has a header of 20 bytes.
  EXPECT_GE(report.rows[0].bytes, 4 * elements + 161 * 20);
  EXPECT_LE(report.rows[0].bytes, 4 * elements + 220 * 20);
  EXPECT_EQ(*report.rows[0].nmse_gradient, 0);
  EXPECT_NEAR(report.rows[1].ratio, 2, 0.03);
  EXPECT_GT(*report.rows[1].nmse_gradient, 1e-9);
  EXPECT_LT(*report.rows[1].nmse_gradient, 1e-6);
}

// For codecs that round, residuals are small, so feedback must change nothing. For sparse codecs,
// residuals raise all values towards the threshold, so selection must get harder.
TEST(CodecReportTest, ErrorsAreThoseOfTraining) {
  struct Wanted {
    const char* spec;
    double gradient, accumulator;
  };
  constexpr Wanted kWanted[] = {
      {"int8", 0.000159, 0.000151},  {"int4", 0.0502, 0.0468},       {"fp8", 0.000608, 0.000606},
      {"qsgd:4", 0.138, 0.131},      {"sign", 0.53, 0.797},          {"topk:1%+int4", 0.722, 0.942},
      {"ternary:0.5", 0.623, 0.606}, {"intsum:8", 0.00236, 0.00501}, {"powersgd:4", 0.179, 0.361}};
  std::vector<std::string> specs;
  for (const Wanted& wanted : kWanted) specs.emplace_back(wanted.spec);
  const CodecReport report = Measured(specs, 4, 100);
  for (size_t i = 0; i < specs.size(); ++i) {
    const CodecReportRow& row = report.rows[i];
    std::printf("{\"%s\", %.3g, %.3g}, after %d\n", specs[i].c_str(), *row.nmse_gradient,
                *row.nmse_accumulator, row.settle);
    EXPECT_NEAR(*row.nmse_gradient, kWanted[i].gradient, 0.1 * kWanted[i].gradient) << specs[i];
    EXPECT_NEAR(*row.nmse_accumulator, kWanted[i].accumulator, 0.1 * kWanted[i].accumulator)
        << specs[i];
  }
}

TEST(CodecReportTest, SettlesUntilFeedbackIsSteady) {
  const CodecReport report = Measured({"none", "int8", "topk:1%"}, 2, 200);
  EXPECT_LE(report.rows[0].settle, 4u);
  EXPECT_LE(report.rows[1].settle, 8u);
  EXPECT_GE(report.rows[2].settle, 20u);
  EXPECT_LE(report.rows[2].settle, 150u);
  EXPECT_EQ(Measured({"topk:1%"}, 1, 7).rows[0].settle, 7u);
}

// Feedback adds up what gradients that return have in common, so more values pass the threshold.
TEST(CodecReportTest, RepeatedGradientsFillMoreOfATernaryFrame) {
  CodecReportOptions options;
  options.specs = {"ternary:0.5"};
  options.elements = 100'000;
  options.settle = 20;
  const absl::StatusOr<CodecReport> fresh = MeasureCodecs(options);
  options.gradients = 3;
  const absl::StatusOr<CodecReport> repeated = MeasureCodecs(options);
  ASSERT_TRUE(fresh.ok() && repeated.ok());
  EXPECT_GT(repeated->rows[0].spec_bytes, 1.05 * fresh->rows[0].spec_bytes);
}

// Small tensors are sent as fp16 and must not count in the codec's result.
TEST(CodecReportTest, CountsLargeTensorsAlone) {
  const CodecReport report = Measured({"int4", "topk:1%", "randomk:5%"});
  for (const CodecReportRow& row : report.rows) {
    EXPECT_GT(row.spec_elements, 0.8 * static_cast<double>(report.elements));
    EXPECT_LT(row.spec_elements, 0.99 * static_cast<double>(report.elements));
    EXPECT_LT(row.spec_bytes, row.bytes);
  }
  EXPECT_NEAR(report.rows[0].spec_bytes / report.rows[0].spec_elements, (4 + 1.0 / 16) / 8, 0.02);
  EXPECT_NEAR(report.rows[2].kept_elements, 0.05 * report.rows[2].spec_elements, 200);
  EXPECT_GT(report.rows[1].spec_bytes / report.rows[1].kept_elements, 2.5);
  EXPECT_LT(report.rows[1].spec_bytes / report.rows[1].kept_elements, 5);
}

TEST(CodecReportTest, VotesEstimateNothing) {
  const CodecReport report = Measured({"signsgd"});
  EXPECT_FALSE(report.rows[0].nmse_gradient.has_value());
  const nlohmann::json json = nlohmann::json::parse(CodecReportJson(report));
  EXPECT_TRUE(json.at("codecs")[0].at("nmse_gradient").is_null());
  EXPECT_TRUE(json.at("codecs")[0].at("nmse_accumulator").is_null());
}

TEST(CodecReportTest, TakesATableFromAFile) {
  const std::string path = ::testing::TempDir() + "codec_report_test.txt";
  std::ofstream(path) << "fc1.weight 256 784\nfc1.bias 256\n";
  const absl::StatusOr<CodecReport> report =
      MeasureCodecs({.table_path = path, .specs = {"int8"}, .steps = 1, .settle = 0, .done = {}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->elements, 256u * 784 + 256);
  EXPECT_EQ(report->tensors, 2u);
  EXPECT_EQ(report->model, path);
  // The frames are 4 chunks of 196 blocks, and one fp16 chunk.
  EXPECT_EQ(report->rows[0].bytes, 256 * 784 + 784 * 2 + 4 * 20 + 256 * 2 + 20);
  std::remove(path.c_str());
  EXPECT_EQ(MeasureCodecs({.table_path = path, .specs = {}, .done = {}}).status().code(),
            absl::StatusCode::kNotFound);
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
       {"bytes_first_step", "bytes_per_step", "ratio", "spec_bytes_per_step", "spec_elements",
        "kept_elements_per_step", "bits_per_element", "nmse_gradient", "nmse_accumulator",
        "encode_ns_per_element", "encode_gb_per_s", "encode_stream_share", "add_ns_per_element",
        "add_gb_per_s", "add_stream_share"}) {
    EXPECT_GT(json.at("codecs")[0].at(key).get<double>(), 0) << key;
  }
  EXPECT_EQ(json.at("codecs")[0].at("spec"), "topk:1%+int4");
  EXPECT_THAT(FormatCodecReport(report), HasSubstr("topk:1%+int4"));
}

TEST(CodecReportTest, RefusesUnknownNames) {
  EXPECT_THAT(MeasureCodecs({.model = "bert-bas", .table_path = "", .specs = {}, .done = {}})
                  .status()
                  .message(),
              HasSubstr("did you mean `bert-base`?"));
  EXPECT_THAT(
      MeasureCodecs({.table_path = "", .specs = {"ternry:0.5"}, .done = {}}).status().message(),
      HasSubstr("ternary"));
  EXPECT_FALSE(MeasureCodecs({.table_path = "", .specs = {}, .steps = 0, .done = {}}).ok());
}

}  // namespace
}  // namespace sluice::bench
