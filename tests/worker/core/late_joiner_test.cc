// SPDX-License-Identifier: Apache-2.0
// Tests a worker that joins a job at a later step. The worker must skip, and accept the others'
// results, until every shard has included it in a whole step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/core/one_worker.h"

namespace sluice::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Rank 0 of two ranks, with two tensors. Each tensor is a bundle on its own shard.
class ModelTrainerPipelineTest : public testing::Test {
 protected:
  ModelTrainerPipelineTest() {
    PipelineOptions options;
    for (const char* name : {"a", "b"}) {
      options.table.push_back({.name = name, .shape = {4}, .strides = {}});
    }
    options.layout =
        *protocol::BuildLayout(options.table, 2, {.chunk_elements = 4, .bundle_elements = 4});
    options.sender = {.job_uid = 7, .rank = 0, .incarnation = 3};
    options.world_size = 2;
    options.first_step = 11;
    options.exchange.membership = job::Membership::kElastic;
    options.late_joiner = true;
    pipeline_.emplace(std::move(options));
  }

  void Skip() {
    pipeline_->StartStep();
    ASSERT_TRUE(pipeline_->SkipStep(&effects_).ok());
    effects_.clear();
  }
  // Answers the open step with the contributions of `included`, from a shard whose open step is
  // `open_step`.
  void Deliver(uint32_t shard, uint64_t open_step, std::vector<uint32_t> included) {
    protocol::ExchangeReply answer;
    answer.outcome = protocol::Outcome::kResult;
    answer.step = pipeline_->step();
    answer.record.step = answer.step;
    for (const uint32_t rank : included) {
      answer.record.included.push_back(
          {.rank = rank, .origin_step = answer.step, .checksum = kAny, .skipped = true});
    }
    answer.open_step = open_step;
    pipeline_->Answer(shard, answer, &effects_);
  }

  static constexpr uint32_t kAny = 4711;
  std::optional<Pipeline> pipeline_;
  Pipeline::Effects effects_;
  const std::vector<float> gradient_ = {1, 2, 3, 4};
};

TEST_F(ModelTrainerPipelineTest, SkipsUntilAllShardsHadAStepInTime) {
  Skip();
  Deliver(0, 15, {1});
  Deliver(1, 14, {0, 1});  // Includes its predecessor's work.
  ASSERT_FALSE(pipeline_->step_open()) << pipeline_->status();
  EXPECT_EQ(pipeline_->Result().steps_behind, 2u);
  Skip();
  Deliver(0, 12, {0, 1});
  Deliver(1, 13, {1});
  EXPECT_EQ(pipeline_->Result().steps_behind, 1u)
      << "one shard still closes steps without this rank";
  EXPECT_THAT(pipeline_->Result().members, ElementsAre(0, 1));
  Skip();
  Deliver(0, 13, {0, 1});
  Deliver(1, 13, {0, 1});
  EXPECT_EQ(pipeline_->Result().steps_behind, 0u);
  pipeline_->StartStep();
  EXPECT_TRUE(pipeline_->TensorReady(0, gradient_).ok());
}

TEST_F(ModelTrainerPipelineTest, WorkIsRefusedSoFar) {
  pipeline_->StartStep();
  const absl::Status early = pipeline_->TensorReady(0, gradient_);
  EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(early.message(), HasSubstr("steps_behind"));
}

TEST_F(ModelTrainerPipelineTest, AMemberIsInEveryStep) {
  Skip();
  Deliver(0, 11, {0, 1});
  Deliver(1, 11, {0, 1});
  ASSERT_EQ(pipeline_->Result().steps_behind, 0u);
  Skip();
  Deliver(0, 12, {1});
  EXPECT_THAT(pipeline_->status().message(), HasSubstr("leaves rank 0 out"));
}

TEST_F(ModelTrainerPipelineTest, AMembersPartIsItsOwn) {
  Skip();
  Deliver(0, 11, {0, 1});
  Deliver(1, 11, {0, 1});
  Skip();
  Deliver(0, 12, {0, 1});
  EXPECT_THAT(pipeline_->status().message(), HasSubstr("this worker sent checksum"));
}

}  // namespace
}  // namespace sluice::worker
