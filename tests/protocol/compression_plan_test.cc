// SPDX-License-Identifier: Apache-2.0
#include "protocol/compression_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compress/codec_table.h"
#include "compress/compressor.h"

namespace sluice::protocol {
namespace {

using ::testing::HasSubstr;

PlanHistory::Plan PlanFrom(uint64_t step, uint64_t id) {
  auto plan = std::make_shared<CompressionPlan>();
  plan->id = id;
  plan->effective_step = step;
  return plan;
}

TEST(PlanHistory, TellsWhatHoldsAndWhatBegins) {
  PlanHistory book;
  EXPECT_EQ(book.At(5), nullptr);
  EXPECT_EQ(book.newest_id(), 0u);
  const PlanHistory::Plan first = PlanFrom(1, 1);
  const PlanHistory::Plan second = PlanFrom(4, 2);
  ASSERT_TRUE(book.Learn(first).ok());
  ASSERT_TRUE(book.Learn(second).ok());
  EXPECT_EQ(book.At(0), nullptr);
  EXPECT_EQ(book.At(3), first);
  EXPECT_EQ(book.At(4), second);
  EXPECT_EQ(book.Beginning(3), nullptr);
  EXPECT_EQ(book.Beginning(4), second);
  book.ForgetBefore(3);
  EXPECT_EQ(book.At(3), first);
  book.ForgetBefore(4);
  EXPECT_EQ(book.At(3), nullptr);
  EXPECT_EQ(book.newest_id(), 2u);
}

TEST(PlanHistory, ARepeatChangesNothingAndAContradictionIsRefused) {
  PlanHistory book;
  ASSERT_TRUE(book.Learn(PlanFrom(4, 2)).ok());
  EXPECT_TRUE(book.Learn(PlanFrom(4, 2)).ok());
  EXPECT_EQ(book.plans().size(), 1u);
  EXPECT_TRUE(book.Learn(PlanFrom(2, 1)).ok());  // The plan is superseded.
  EXPECT_EQ(book.plans().size(), 1u);
  EXPECT_FALSE(book.Learn(PlanFrom(4, 3)).ok());
  EXPECT_FALSE(book.Learn(PlanFrom(5, 2)).ok());
  EXPECT_FALSE(book.Learn(PlanFrom(6, 1)).ok());
}

TEST(PlanHistory, HasALimit) {
  PlanHistory book;
  for (uint64_t i = 1; i <= 4; ++i) ASSERT_TRUE(book.Learn(PlanFrom(2 * i, i)).ok());
  EXPECT_FALSE(book.Learn(PlanFrom(10, 5)).ok());
}

TEST(CompressionPlan, ChangesWhatItNamesAndNoCompensator) {
  CompressionPlan plan;
  plan.entries = {
      {.direction = Direction::kUplink, .codec = *compress::ParseCodecSpec("int8"), .tensors = {1}},
      {.direction = Direction::kUplink,
       .codec = *compress::ParseCodecSpec("fp16"),
       .tensors = {0, 1},
       .ranks = {3}},
      {.direction = Direction::kDownlink,
       .codec = *compress::ParseCodecSpec("int4"),
       .tensors = {0}}};
  const std::vector<compress::ChunkConfig> chunks = {
      {.count = 8, .spec = *compress::ParseCodecSpec("topk:1%"), .tensor = 0},
      {.count = 8, .spec = *compress::ParseCodecSpec("topk:1%/noef"), .id = 1, .tensor = 1}};
  const auto texts = [&](Direction direction, uint32_t rank) {
    std::vector<std::string> out;
    for (const compress::CodecSpec& spec : SpecsUnder(&plan, direction, rank, chunks)) {
      EXPECT_EQ(spec.compensator, chunks[out.size()].spec.compensator);
      out.emplace_back(compress::FindCodec(spec.codec).name);
    }
    return out;
  };
  EXPECT_THAT(texts(Direction::kUplink, 0), ::testing::ElementsAre("topk", "int8"));
  EXPECT_THAT(texts(Direction::kUplink, 3), ::testing::ElementsAre("fp16", "fp16"));
  EXPECT_THAT(texts(Direction::kDownlink, 3), ::testing::ElementsAre("int4", "topk"));
  EXPECT_EQ(SpecsUnder(nullptr, Direction::kUplink, 0, chunks)[0], chunks[0].spec);
}

// Codecs that a plan may choose must have no state except a residual, and it must be possible to
// add their frames.
TEST(CompressionPlan, CodecsThatMayChangeKeepNothingButAResidual) {
  int found = 0;
  for (const compress::CodecEntry& entry : compress::Codecs()) {
    compress::CodecSpec spec;
    spec.codec = entry.id;
    if (!MayChange(spec)) continue;
    ++found;
    EXPECT_EQ(entry.aggregation, compress::Aggregation::kAdditive) << entry.name;
  }
  EXPECT_EQ(found, 12);
  for (const char* text : {"powersgd:2", "lsh", "countsketch:4x", "intsum:4", "signsgd",
                           "topk:1%/ef21", "topk:1%/dgc:0.9", "qsgd:4/diana"}) {
    const absl::StatusOr<compress::CodecSpec> spec = compress::ParseCodecSpec(text);
    EXPECT_TRUE(!spec.ok() || !MayChange(*spec)) << text;
  }
}

TEST(CompressionPlan, AMomentumIsBelowOne) {
  CompressionPlan plan{.id = 1, .effective_step = 1};
  for (const float fine : {0.0f, 0.5f, 0.99f}) {
    plan.momentum = fine;
    EXPECT_TRUE(CheckPlan(plan, {}, {}).ok()) << fine;
  }
  for (const float wrong : {-0.1f, 1.0f, std::nanf("")}) {
    plan.momentum = wrong;
    EXPECT_THAT(CheckPlan(plan, {}, {}).message(), HasSubstr("a momentum of")) << wrong;
  }
}

TEST(CompressionPlan, SummaryIsForAPerson) {
  CompressionPlan plan;
  EXPECT_EQ(Summary(plan), "as the job file says");
  plan.entries = {{.direction = Direction::kUplink,
                   .codec = *compress::ParseCodecSpec("topk:1%+int4"),
                   .tensors = {0, 2}}};
  EXPECT_EQ(Summary(plan), "topk:1%+int4 up in 2 tensors");
  plan.momentum = 0.5f;
  EXPECT_EQ(Summary(plan), "topk:1%+int4 up in 2 tensors; momentum 0.5");
}

}  // namespace
}  // namespace sluice::protocol
