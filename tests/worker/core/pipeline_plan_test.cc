// SPDX-License-Identifier: Apache-2.0
// Tests compression plans in a worker. The worker must encode with the step's plan, pass on
// announced plans, and refuse invalid ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compress/frame.h"
#include "tests/worker/core/one_worker.h"

namespace sluice::worker {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPipelinePlanSize = 64;

// One worker has tensors a and b, each in its own bundle, with b first.
class PipelinePlanTest : public testing::Test {
 protected:
  void Make(bool makes_plans, uint64_t first_step = 1) {
    compression_.uplink = *compress::ParseCodecSpec("topk:10%");
    compression_.min_elements = 0;
    PipelineOptions options;
    for (const char* name : {"a", "b"}) {
      options.table.push_back({.name = name, .shape = {kPipelinePlanSize}, .strides = {}});
    }
    options.layout =
        *protocol::BuildLayout(options.table, 1, {kPipelinePlanSize, kPipelinePlanSize});
    options.sender = {.job_uid = 7, .rank = 0, .incarnation = 3};
    options.first_step = first_step;
    if (makes_plans) options.exchange.control.policy = job::PolicyKind::kSchedule;
    options.exchange.compression = compression_;
    encoder_.emplace(options.table, options.layout, compression_, 0);
    pipeline_.emplace(std::move(options));
    for (size_t i = 0; i < kPipelinePlanSize; ++i) gradient_[i] = static_cast<float>(i) - 10.5f;
  }
  static protocol::CompressionPlan PlanFrom(uint64_t step, uint64_t id, const char* codec) {
    protocol::CompressionPlan plan{.id = id, .effective_step = step};
    plan.entries = {{.direction = protocol::Direction::kUplink,
                     .codec = *compress::ParseCodecSpec(codec),
                     .tensors = {0, 1}}};
    return plan;
  }
  // Returns the sent requests, by bundle.
  std::vector<protocol::ExchangeRequest> Send() {
    Pipeline::Effects effects;
    pipeline_->StartStep();
    for (const uint32_t tensor : {1, 0}) {
      EXPECT_TRUE(pipeline_->TensorReady(tensor, gradient_).ok());
      while (std::optional<EncodeTask> task = pipeline_->NextEncoding()) {
        pipeline_->Encoded(encoder_->Encode(*task), &effects);
      }
    }
    std::vector<protocol::ExchangeRequest> sent;
    for (const auto& exchange : SentBy(effects)) sent.push_back(*exchange);
    return sent;
  }
  // Runs a step. `announced` comes with the first bundle's result.
  std::vector<protocol::ExchangeRequest> Step(
      const protocol::CompressionPlan* announced = nullptr) {
    const std::vector<protocol::ExchangeRequest> sent = Send();
    for (const protocol::ExchangeRequest& exchange : sent) {
      protocol::ExchangeReply answer = ResultOf(exchange);
      if (exchange.bundle == 0 && announced != nullptr) {
        answer.plan = std::make_shared<const protocol::CompressionPlan>(*announced);
      }
      Pipeline::Effects effects;
      pipeline_->Answer(0, std::move(answer), &effects);
    }
    return sent;
  }
  static compress::FormatId FormatOf(const protocol::ExchangeRequest& sent) {
    return compress::ReadFrameHeader(protocol::FrameBytes(sent.frames.at(0)))->format;
  }

  protocol::CompressionSpec compression_;
  std::vector<float> gradient_ = std::vector<float>(kPipelinePlanSize);
  std::optional<Pipeline> pipeline_;
  std::optional<BundleEncoder> encoder_;
};

TEST_F(PipelinePlanTest, CodesByThePlanFromItsStepOnAndPassesItOnBefore) {
  Make(true);
  ASSERT_TRUE(pipeline_->SetPlans({PlanFrom(1, 1, "int8")}).ok());
  const protocol::CompressionPlan next = PlanFrom(3, 2, "fp16");
  const std::vector<protocol::ExchangeRequest> first = Step(&next);
  EXPECT_EQ(FormatOf(first[0]), compress::FormatId::kInt8);
  EXPECT_EQ(first[0].plan_id, 1u);
  EXPECT_EQ(first[0].plan, nullptr);
  const std::vector<protocol::ExchangeRequest> second = Step();
  EXPECT_EQ(FormatOf(second[0]), compress::FormatId::kInt8);
  ASSERT_NE(second[0].plan, nullptr);
  EXPECT_EQ(*second[0].plan, next);
  EXPECT_EQ(second[1].plan, nullptr);
  EXPECT_EQ(pipeline_->KnownPlans().size(), 2u);
  const std::vector<protocol::ExchangeRequest> third = Step();
  EXPECT_EQ(FormatOf(third[0]), compress::FormatId::kFp16);
  EXPECT_EQ(third[1].plan_id, 2u);
  EXPECT_EQ(third[0].plan, nullptr);
  EXPECT_EQ(pipeline_->KnownPlans().size(), 1u);
}

TEST_F(PipelinePlanTest, ASkipPassesThePlanOnToo) {
  Make(true);
  ASSERT_TRUE(pipeline_->SetPlans({PlanFrom(1, 1, "int8")}).ok());
  const protocol::CompressionPlan next = PlanFrom(3, 2, "fp16");
  Step(&next);
  Pipeline::Effects effects;
  pipeline_->StartStep();
  ASSERT_TRUE(pipeline_->SkipStep(&effects).ok());
  EXPECT_NE(SentBy(effects)[0]->plan, nullptr);
}

TEST_F(PipelinePlanTest, WithoutControlNothingIsSaidAndAPlanIsAnError) {
  Make(false);
  EXPECT_TRUE(pipeline_->SetPlans({}).ok());
  EXPECT_THAT(pipeline_->SetPlans({PlanFrom(1, 1, "int8")}).message(), HasSubstr("makes none"));
  EXPECT_EQ(Step()[0].plan_id, 0u);
  const protocol::CompressionPlan plan = PlanFrom(4, 2, "fp16");
  Step(&plan);
  EXPECT_THAT(pipeline_->status().message(), HasSubstr("compression plan 2 is invalid"));
}

TEST_F(PipelinePlanTest, WhatCannotBeEndsTheSession) {
  const auto failure = [this](const protocol::CompressionPlan& plan) {
    Make(true);
    EXPECT_TRUE(pipeline_->SetPlans({PlanFrom(1, 1, "int8")}).ok());
    Step(&plan);
    EXPECT_FALSE(pipeline_->status().ok());
    return std::string(pipeline_->status().message());
  };
  EXPECT_THAT(failure(PlanFrom(2, 2, "fp16")), HasSubstr("begins with step 2"));
  EXPECT_THAT(failure(PlanFrom(3, 1, "fp16")), HasSubstr("contradicts plan 1"));
  EXPECT_THAT(failure(PlanFrom(3, 2, "powersgd:2")), HasSubstr("no plan can have"));
  protocol::CompressionPlan plan = PlanFrom(3, 2, "fp16");
  plan.entries[0].tensors = {9};
  EXPECT_THAT(failure(plan), HasSubstr("tensor 9"));
}

TEST_F(PipelinePlanTest, BeginsWithAPlanThatHolds) {
  Make(true, /*first_step=*/8);
  EXPECT_THAT(pipeline_->SetPlans({}).message(), HasSubstr("no compression plan holds in step 8"));
  EXPECT_FALSE(pipeline_->SetPlans({PlanFrom(9, 3, "int8")}).ok());
  ASSERT_TRUE(pipeline_->SetPlans({PlanFrom(5, 2, "int8"), PlanFrom(9, 3, "fp16")}).ok());
  const std::vector<protocol::ExchangeRequest> sent = Step();
  EXPECT_EQ(sent[0].plan_id, 2u);
  EXPECT_EQ(sent[0].plan->id, 3u);
  EXPECT_EQ(Step()[0].plan_id, 3u);
}

// A result may answer a predecessor's request for a step far ahead. The worker must not adopt a
// plan from such a result.
TEST_F(PipelinePlanTest, LearnsFromItsOwnStepAlone) {
  Make(true);
  ASSERT_TRUE(pipeline_->SetPlans({PlanFrom(1, 1, "int8")}).ok());
  const std::vector<protocol::ExchangeRequest> sent = Send();
  protocol::ExchangeRequest ahead = sent[0];
  ahead.step = 6;
  protocol::ExchangeReply early = ResultOf(ahead);
  early.plan = std::make_shared<const protocol::CompressionPlan>(PlanFrom(8, 4, "int4"));
  Pipeline::Effects effects;
  pipeline_->Answer(0, early, &effects);
  EXPECT_TRUE(pipeline_->status().ok());
  EXPECT_EQ(pipeline_->KnownPlans().size(), 1u);
}

TEST_F(PipelinePlanTest, AnEncoderGoesOnAsItWasSavedUnderAPlan) {
  Make(true);
  ASSERT_TRUE(pipeline_->SetPlans({PlanFrom(1, 1, "topk:30%+int4")}).ok());
  Step();
  const compress::SavedCompressor saved = encoder_->Save();
  const std::vector<protocol::ExchangeRequest> expected = Step();
  Make(true, /*first_step=*/2);
  ASSERT_TRUE(encoder_->Restore(saved, /*plans=*/true).ok());
  ASSERT_TRUE(pipeline_->SetPlans({PlanFrom(1, 1, "topk:30%+int4")}).ok());
  EXPECT_EQ(Step()[0].frames, expected[0].frames);
  EXPECT_FALSE(encoder_->Restore({}, /*plans=*/true).ok());
}

}  // namespace
}  // namespace sluice::worker
