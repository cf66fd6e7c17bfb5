// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/machine_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "tests/planning/estimate/samples.h"

namespace sluice::planning {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Error(const std::string& text) {
  const absl::StatusOr<MachineFigures> figures = ParseMachineFigures(text);
  EXPECT_FALSE(figures.ok());
  return std::string(figures.status().message());
}

TEST(MachineFigures, GivesMeasuredFiguresForAnyCompensator) {
  const MachineFigures machine = {.codecs = {{"topk:1%+int4", {0.12, 0.5, 0.1}}}};
  for (const char* text : {"topk:1%+int4", "topk:1%+int4/noef", "topk:1%+int4/dgc:0"}) {
    const absl::StatusOr<CodecFigures> figures = FiguresOf(machine, Spec(text));
    ASSERT_TRUE(figures.ok()) << text;
    EXPECT_EQ(figures->bits, 0.12);
    EXPECT_EQ(figures->encode_ns, 0.5);
    EXPECT_EQ(figures->add_ns, 0.1);
  }
}

TEST(MachineFigures, ScalesThePriceOfOtherLevelsByTheNearestMeasuredOne) {
  // The codec table's price of topk per element: add_ns is 7.4 times the density.
  const MachineFigures machine = {
      .codecs = {{"topk:1%+int4", {0.12, 0.5, 2 * 7.4 * 0.01}}, {"topk:50%+int4", {9, 9, 9}}}};
  const absl::StatusOr<CodecFigures> figures = FiguresOf(machine, Spec("topk:2%+int4"));
  ASSERT_TRUE(figures.ok());
  EXPECT_NEAR(figures->add_ns, 2 * 7.4 * 0.02, 1e-9);
  EXPECT_GT(figures->bits, 0.12);
  EXPECT_LT(figures->bits, 2 * 0.12);
}

TEST(MachineFigures, UsesThePriceOfACodecThatWasNotMeasured) {
  const absl::StatusOr<CodecFigures> figures = FiguresOf({}, Spec("fp16"));
  ASSERT_TRUE(figures.ok());
  EXPECT_EQ(figures->bits, 16);
}

TEST(MachineFigures, TellsHowToMeasureAnUnknownCodec) {
  const absl::StatusOr<CodecFigures> figures = FiguresOf(UsualFigures(), Spec("powersgd:4"));
  ASSERT_FALSE(figures.ok());
  EXPECT_THAT(std::string(figures.status().message()),
              AllOf(HasSubstr("powersgd:4"), HasSubstr("--calibrate FILE --spec powersgd:4")));
}

TEST(MachineFigures, UsualFiguresHaveValidSpecsAndSurviveTheFile) {
  const MachineFigures usual = UsualFigures();
  const absl::StatusOr<MachineFigures> read = ParseMachineFigures(MachineFiguresJson(usual));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->cores, usual.cores);
  EXPECT_EQ(read->step_ms, usual.step_ms);
  EXPECT_EQ(read->bundle_us, usual.bundle_us);
  EXPECT_EQ(read->tensor_us, usual.tensor_us);
  EXPECT_EQ(read->worker_ns, usual.worker_ns);
  EXPECT_EQ(read->shard_ns, usual.shard_ns);
  ASSERT_EQ(read->codecs.size(), usual.codecs.size());
  for (const auto& [spec, figures] : usual.codecs) {
    ASSERT_TRUE(read->codecs.contains(spec)) << spec;
    EXPECT_EQ(read->codecs.at(spec).bits, figures.bits);
    EXPECT_EQ(read->codecs.at(spec).encode_ns, figures.encode_ns);
    EXPECT_EQ(read->codecs.at(spec).add_ns, figures.add_ns);
  }
}

TEST(MachineFigures, NamesTheKeyOfABadFile) {
  EXPECT_THAT(Error("oops"), HasSubstr("not a JSON object"));
  EXPECT_THAT(Error("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(Error("{}"), HasSubstr("schema is missing"));
  nlohmann::json file = nlohmann::json::parse(MachineFiguresJson(UsualFigures()));
  const auto with = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json changed = file;
    changed[nlohmann::json::json_pointer(pointer)] = value;
    return Error(changed.dump());
  };
  EXPECT_THAT(with("/schema", 2), HasSubstr("schema is 2; this version reads 1"));
  EXPECT_THAT(with("/cores", 0), HasSubstr("cores is below 1"));
  EXPECT_THAT(with("/step_ms", -1), HasSubstr("step_ms is -1; it must be from 0"));
  EXPECT_THAT(with("/bundle_us", "many"), HasSubstr("bundle_us is not a number"));
  EXPECT_THAT(with("/shard_ns_per_byte", 1e9), HasSubstr("shard_ns_per_byte"));
  EXPECT_THAT(with("/codecs", 3), HasSubstr("codecs is not an object"));
  EXPECT_THAT(with("/codecs/none", 3), HasSubstr("codecs.none is not an object"));
  EXPECT_THAT(with("/codecs/none", nlohmann::json::object()), HasSubstr("codecs.none.bits"));
  EXPECT_THAT(with("/codecs/nune", file["codecs"]["none"]), HasSubstr("none"));
}

}  // namespace
}  // namespace sluice::planning
