// SPDX-License-Identifier: Apache-2.0
#include "worker/core/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "compress/frame.h"
#include "tests/worker/core/pipeline_fixture.h"
#include "tests/worker/core/read_results.h"

namespace sluice::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(PipelineTest, BundlesGoInOrderWhateverIsReadyFirst) {
  Make("none");
  pipeline_->StartStep();
  Ready(0);
  Ready(1);
  EXPECT_THAT(TakeSentBundles(), IsEmpty());
  EXPECT_EQ(pipeline_->MissingTensor(), 2u);
  Ready(2);
  EXPECT_THAT(TakeSentBundles(), ElementsAre(0, 1, 2));
  EXPECT_EQ(pipeline_->MissingTensor(), std::nullopt);
}

TEST_F(PipelineTest, OneTaskAtATime) {
  Make("none");
  pipeline_->StartStep();
  for (const uint32_t tensor : {0, 1, 2}) {
    ASSERT_TRUE(pipeline_->TensorReady(tensor, gradients_[tensor]).ok());
  }
  std::optional<EncodeTask> task = pipeline_->NextEncoding();
  ASSERT_TRUE(task.has_value());
  EXPECT_FALSE(pipeline_->NextEncoding().has_value());
  pipeline_->Encoded(encoder_->Encode(*task), &effects_);
  EXPECT_TRUE(pipeline_->NextEncoding().has_value());
}

TEST_F(PipelineTest, TheWindowHoldsBackUntilAdmitted) {
  Make("none", 2 * (4 * kSize + compress::kFrameHeaderSize));
  StartWhole();
  EXPECT_THAT(TakeSentBundles(), ElementsAre(0, 1));
  Answer(protocol::Outcome::kPending, 1, 1);
  EXPECT_THAT(TakeSentBundles(), ElementsAre(2));
}

TEST_F(PipelineTest, OneBundleMayAlwaysFly) {
  Make("none", 1);
  StartWhole();
  EXPECT_THAT(TakeSentBundles(), ElementsAre(0));
  Answer(protocol::Outcome::kPending, 1, 0);
  EXPECT_THAT(TakeSentBundles(), ElementsAre(1));
}

TEST_F(PipelineTest, AResultGivesCreditBackToo) {
  Make("none", 1);
  StartWhole();
  AnswerAll(TakeSends());
  EXPECT_THAT(TakeSentBundles(), ElementsAre(1));
}

TEST_F(PipelineTest, AResetRepeatsTheUnresolvedByteForByte) {
  Make("topk:5%");
  StartWhole();
  const auto first = TakeSends();
  Answer(protocol::Outcome::kPending, 1, 2);
  pipeline_->Answer(0, ResultOf(*first[1]), &effects_);
  effects_.clear();
  pipeline_->StreamReset(0, &effects_);
  const auto again = TakeSends();
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0]->frames, first[0]->frames);
  EXPECT_EQ(again[1]->frames, first[2]->frames);
  EXPECT_EQ(again[1]->bundle, 2u);
  AnswerAll(again);
  EXPECT_EQ(Count<StepDone>(), 1);
}

TEST_F(PipelineTest, AResetKeepsTheWindow) {
  Make("none", 1);
  StartWhole();
  Answer(protocol::Outcome::kPending, 1, 0);
  Answer(protocol::Outcome::kPending, 1, 1);
  Answer(protocol::Outcome::kPending, 1, 2);
  effects_.clear();
  pipeline_->StreamReset(0, &effects_);
  EXPECT_THAT(TakeSentBundles(), ElementsAre(0));
  // This answer is from the old stream. A bundle that waits to be resent must still be resent.
  Answer(protocol::Outcome::kPending, 1, 1);
  EXPECT_THAT(TakeSentBundles(), IsEmpty());
  Answer(protocol::Outcome::kPending, 1, 0);
  EXPECT_THAT(TakeSentBundles(), ElementsAre(1));
}

TEST_F(PipelineTest, AGradientThatIsNotFiniteSkipsItsBundleAlone) {
  Make("topk:5%");
  FinishStep();
  const absl::Span<const float> owed = encoder_->compressor().residual(1);
  const std::vector<float> before(owed.begin(), owed.end());
  ASSERT_FALSE(before.empty());
  gradients_[1][5] = std::numeric_limits<float>::quiet_NaN();
  StartWhole();
  const auto sends = TakeSends();
  ASSERT_EQ(sends.size(), 3u);
  EXPECT_FALSE(sends[0]->skip);
  EXPECT_TRUE(sends[1]->skip);
  EXPECT_THAT(sends[1]->frames, IsEmpty());
  EXPECT_FALSE(sends[2]->skip);
  EXPECT_EQ(encoder_->compressor().residual(1), absl::MakeConstSpan(before));
  AnswerAll(sends);
  const StepResult result = pipeline_->Result();
  EXPECT_EQ(result.bundles_skipped_here, 1u);
  EXPECT_EQ(result.first_skipped_tensor, "b");
  EXPECT_EQ(result.n_min, 0u);
  EXPECT_EQ(result.n_max, 1u);
  std::vector<float> mean(kSize, 9.0f);
  ASSERT_TRUE(ReadMean(*pipeline_, 1, absl::MakeSpan(mean)).ok());
  EXPECT_THAT(mean, testing::Each(0.0f));
}

TEST_F(PipelineTest, MeansAreWhatWasAnswered) {
  Make("none");
  FinishStep();
  for (uint32_t tensor = 0; tensor < 3; ++tensor) {
    std::vector<float> mean(kSize, 9.0f);
    ASSERT_TRUE(ReadMean(*pipeline_, tensor, absl::MakeSpan(mean)).ok());
    EXPECT_EQ(mean, gradients_[tensor]);
  }
  std::vector<float> wrong(kSize + 1);
  EXPECT_EQ(ReadMean(*pipeline_, 0, absl::MakeSpan(wrong)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(PipelineTest, RepeatedAnswersChangeNothing) {
  Make("none");
  StartWhole();
  const auto first = TakeSends();
  pipeline_->Answer(0, ResultOf(*first[0]), &effects_);
  protocol::ExchangeReply other = ResultOf(*first[0]);
  other.results = first[1]->frames;
  other.record.result_checksum = protocol::BundleChecksum(other.results);
  pipeline_->Answer(0, other, &effects_);
  Answer(protocol::Outcome::kPending, 1, 0);
  Answer(protocol::Outcome::kInvalid, 1, 0, "late");
  AnswerAll(first);
  EXPECT_EQ(Count<StepDone>(), 1);
  std::vector<float> mean(kSize);
  ASSERT_TRUE(ReadMean(*pipeline_, 2, absl::MakeSpan(mean)).ok());
  EXPECT_EQ(mean, gradients_[2]);
  // Repeated answers of an older step must change nothing either.
  StartWhole();
  effects_.clear();
  AnswerAll(first);
  Answer(protocol::Outcome::kInvalid, 1, 1, "step 1 is over");
  EXPECT_TRUE(effects_.empty());
  EXPECT_TRUE(pipeline_->status().ok());
}

TEST_F(PipelineTest, AcknowledgesTheStepBefore) {
  Make("none");
  StartWhole();
  auto sends = TakeSends();
  EXPECT_EQ(sends[0]->acked_step, 0u);
  AnswerAll(sends);
  StartWhole();
  EXPECT_EQ(TakeSends()[0]->acked_step, 1u);
}

TEST_F(PipelineTest, BusyWaitsAndRepeatsInOrder) {
  Make("none");
  StartWhole();
  const auto first = TakeSends();
  Answer(protocol::Outcome::kBusy, 1, 1);
  ASSERT_EQ(Count<RetryLater>(), 1);
  EXPECT_EQ(std::get<RetryLater>(effects_[0]).delay, absl::Milliseconds(30));
  Answer(protocol::Outcome::kBusy, 1, 2);
  EXPECT_EQ(Count<RetryLater>(), 1);
  EXPECT_THAT(TakeSentBundles(), IsEmpty());
  pipeline_->RetryDue(0, &effects_);
  const auto again = TakeSends();
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0], first[1]);
  EXPECT_EQ(again[1], first[2]);
}

TEST_F(PipelineTest, NeedRepeatsButNotForEver) {
  Make("none");
  StartWhole();
  TakeSends();
  Answer(protocol::Outcome::kNeed, 1, 1);
  EXPECT_THAT(TakeSentBundles(), ElementsAre(1));
  for (int i = 0; i < 100 && pipeline_->status().ok(); ++i) Answer(protocol::Outcome::kNeed, 1, 1);
  EXPECT_THAT(std::string(pipeline_->status().message()), HasSubstr("bundle 1 of shard 0"));
}

TEST_F(PipelineTest, RefusalsAreFinalAndSayWhatTheShardSaid) {
  for (const protocol::Outcome outcome :
       {protocol::Outcome::kInvalid, protocol::Outcome::kFenced}) {
    Make("none");
    StartWhole();
    effects_.clear();
    Answer(outcome, 1, 1, "chunk 4 has a bad scale");
    ASSERT_EQ(Count<PipelineFailed>(), 1);
    EXPECT_THAT(std::string(pipeline_->status().message()), HasSubstr("chunk 4 has a bad scale"));
    EXPECT_THAT(std::string(pipeline_->status().message()), HasSubstr("shard 0"));
    effects_.clear();
    pipeline_->StreamReset(0, &effects_);
    Answer(protocol::Outcome::kBusy, 1, 2);
    EXPECT_TRUE(effects_.empty());
    EXPECT_EQ(pipeline_->TensorReady(0, gradients_[0]), pipeline_->status());
  }
}

TEST_F(PipelineTest, AnAnswerToNothingIsAnError) {
  for (const auto& [step, bundle] : {std::pair{1, 1}, {1, 3}, {2, 0}}) {
    Make("none");
    pipeline_->StartStep();
    Ready(2);
    Answer(protocol::Outcome::kPending, step, bundle);
    EXPECT_FALSE(pipeline_->status().ok()) << step << " " << bundle;
  }
}

TEST_F(PipelineTest, SkippingAStep) {
  Make("none");
  pipeline_->StartStep();
  ASSERT_TRUE(pipeline_->SkipStep(&effects_).ok());
  EXPECT_FALSE(pipeline_->NextEncoding().has_value());
  const auto sends = TakeSends();
  ASSERT_EQ(sends.size(), 3u);
  for (const auto& exchange : sends) EXPECT_TRUE(exchange->skip);
  EXPECT_FALSE(pipeline_->TensorReady(0, gradients_[0]).ok());
  EXPECT_EQ(pipeline_->SkipStep(&effects_).code(), absl::StatusCode::kFailedPrecondition);
  AnswerAll(sends);
  EXPECT_EQ(pipeline_->Result().n_max, 0u);
  EXPECT_THAT(pipeline_->Result().without_mean, ElementsAre(0, 1, 2));
  EXPECT_EQ(pipeline_->Result().bundles_skipped_here, 0u);
}

TEST_F(PipelineTest, NamesTheTensorsThatHaveNoMean) {
  Make("none");
  FinishStep();
  EXPECT_THAT(pipeline_->Result().without_mean, IsEmpty());
  gradients_[1][3] = INFINITY;
  FinishStep();
  EXPECT_EQ(pipeline_->Result().n_max, 1u);
  EXPECT_THAT(pipeline_->Result().without_mean, ElementsAre(1));
}

TEST_F(PipelineTest, WrongSubmitsAreRefused) {
  Make("none");
  pipeline_->StartStep();
  EXPECT_FALSE(pipeline_->TensorReady(3, gradients_[0]).ok());
  const absl::Status size =
      pipeline_->TensorReady(1, absl::MakeConstSpan(gradients_[1]).first(kSize - 1));
  EXPECT_THAT(std::string(size.message()), HasSubstr("63 elements"));
  ASSERT_TRUE(pipeline_->TensorReady(1, gradients_[1]).ok());
  const absl::Status twice = pipeline_->TensorReady(1, gradients_[1]);
  EXPECT_THAT(std::string(twice.message()), HasSubstr("b was submitted twice"));
  EXPECT_EQ(pipeline_->SkipStep(&effects_).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PipelineTest, StepZeroIsLosslessAndLeavesNoResidual) {
  Make("topk:5%", 1 << 20, 1, /*parameters_agree=*/false);
  FinishStep();
  EXPECT_EQ(pipeline_->step(), 0u);
  EXPECT_EQ(pipeline_->next_step(), 1u);
  EXPECT_TRUE(encoder_->compressor().residual(0).empty());
  std::vector<float> mean(kSize);
  ASSERT_TRUE(ReadMean(*pipeline_, 0, absl::MakeSpan(mean)).ok());
  EXPECT_EQ(mean, gradients_[0]);
}

TEST_F(PipelineTest, ACheckpointNamedByShardZeroIsSaidToAllAndDueOnce) {
  Make("none");
  StartWhole();
  const auto first = TakeSends();
  EXPECT_EQ(first[0]->checkpoint_step, 0u);
  protocol::ExchangeReply named = ResultOf(*first[0]);
  named.checkpoint_step = 3;
  pipeline_->Answer(0, named, &effects_);
  // These answers lack the name: their shard did not know it yet, or they were delayed.
  pipeline_->Answer(0, ResultOf(*first[1]), &effects_);
  pipeline_->Answer(0, ResultOf(*first[2]), &effects_);
  EXPECT_FALSE(pipeline_->Result().checkpoint_due);
  for (uint64_t step = 2; step <= 5; ++step) {
    effects_.clear();
    StartWhole();
    const auto sends = TakeSends();
    ASSERT_EQ(sends.size(), 3u);
    for (const auto& exchange : sends) EXPECT_EQ(exchange->checkpoint_step, step <= 3 ? 3u : 0u);
    AnswerAll(sends);
    EXPECT_EQ(pipeline_->Result().checkpoint_due, step == 3) << "step " << step;
  }
}

TEST_F(PipelineTest, ANameThatComesLateTakesNothingBack) {
  Make("none");
  StartWhole();
  const auto sends = TakeSends();
  protocol::ExchangeReply answer = ResultOf(*sends[0]);
  answer.checkpoint_step = 4;
  pipeline_->Answer(0, answer, &effects_);
  answer.checkpoint_step = 3;  // A delayed answer.
  pipeline_->Answer(0, answer, &effects_);
  pipeline_->Answer(0, ResultOf(*sends[1]), &effects_);
  pipeline_->Answer(0, ResultOf(*sends[2]), &effects_);
  StartWhole();
  EXPECT_EQ(TakeSends()[0]->checkpoint_step, 4u);
}

// A worker that re-executes steps may learn of a later checkpoint. A shard that replays these steps
// would reject its name, so the worker must not send the name more than two steps ahead.
TEST_F(PipelineTest, SaysTheNameOfACheckpointInTheLastThreeStepsOnly) {
  Make("none");
  for (uint64_t step = 1; step <= 8; ++step) {
    StartWhole();
    for (const auto& send : TakeSends()) {
      EXPECT_EQ(send->checkpoint_step, step >= 5 && step <= 7 ? 7u : 0u) << "step " << step;
      protocol::ExchangeReply answer = ResultOf(*send);
      if (step == 1) answer.checkpoint_step = 7;
      pipeline_->Answer(0, answer, &effects_);
    }
  }
}

TEST_F(PipelineTest, WhicheverShardKnowsOfACheckpointPassesItOn) {
  PipelineOptions options;
  for (const char* name : {"a", "b"}) {
    options.table.push_back({.name = name, .shape = {kSize}, .strides = {}});
  }
  options.layout =
      *protocol::BuildLayout(options.table, 2, {.chunk_elements = kSize, .bundle_elements = kSize});
  Pipeline pipeline(options);
  uint64_t known = 0;
  for (const uint32_t shard : {1, 0, 1}) {
    Pipeline::Effects effects;
    pipeline.StartStep();
    ASSERT_TRUE(pipeline.SkipStep(&effects).ok());
    Pipeline::Effects ignored;
    for (const PipelineEffect& effect : effects) {
      const auto& send = std::get<SendExchange>(effect);
      EXPECT_EQ(send.exchange->checkpoint_step, known);
      protocol::ExchangeReply answer = ResultOf(*send.exchange);
      answer.checkpoint_step = send.shard == shard ? 3 + shard : 0;
      pipeline.Answer(send.shard, answer, &ignored);
    }
    ASSERT_FALSE(pipeline.step_open());
    known = 4;
  }
}

TEST_F(PipelineTest, WhatWasPublishedIsHandedOutOnce) {
  Make("intsum:8");
  FinishStep();
  const std::vector<Published> taken = pipeline_->TakePublished();
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken[0].frames.size(), taken[0].chunks.size());
  EXPECT_THAT(pipeline_->TakePublished(), IsEmpty());
  // Results remain available for Apply.
  std::vector<float> mean(kSize);
  ASSERT_TRUE(ReadMean(*pipeline_, 0, absl::MakeSpan(mean)).ok());
  EXPECT_NE(mean, std::vector<float>(kSize));

  const auto tasks_with_published = [&] {
    int count = 0;
    pipeline_->StartStep();
    for (const uint32_t tensor : {2, 1, 0}) {
      EXPECT_TRUE(pipeline_->TensorReady(tensor, gradients_[tensor]).ok());
    }
    while (std::optional<EncodeTask> task = pipeline_->NextEncoding()) {
      count += task->published.empty() ? 0 : 1;
      pipeline_->Encoded(encoder_->Encode(*task), &effects_);
    }
    return count;
  };
  EXPECT_EQ(tasks_with_published(), 0);
  AnswerAll(TakeSends());
  EXPECT_EQ(tasks_with_published(), 3);
  // Nothing is published, and the earlier published frames must not be delivered again.
  for (const auto& exchange : TakeSends()) {
    protocol::ExchangeRequest skip = *exchange;
    skip.skip = true;
    protocol::ExchangeReply answer = ResultOf(skip);
    answer.results.clear();
    answer.record.result_checksum = protocol::BundleChecksum(std::vector<std::string>());
    pipeline_->Answer(0, answer, &effects_);
  }
  ASSERT_FALSE(pipeline_->step_open()) << pipeline_->status();
  EXPECT_THAT(pipeline_->TakePublished(), IsEmpty());
}

TEST_F(PipelineTest, StepZeroPublishesNothingToObserve) {
  Make("intsum:8", 1 << 20, 1, /*parameters_agree=*/false);
  FinishStep();
  ASSERT_EQ(pipeline_->step(), 0u);
  EXPECT_THAT(pipeline_->TakePublished(), IsEmpty());
}

TEST_F(PipelineTest, FencedWithAHigherTermIsARollback) {
  Make("none");
  StartWhole();
  protocol::ExchangeReply answer;
  answer.outcome = protocol::Outcome::kFenced;
  answer.term = 1;
  answer.message = "worker 2 was lost";
  pipeline_->Answer(0, answer, &effects_);
  EXPECT_TRUE(IsRollback(pipeline_->status()));
  EXPECT_THAT(std::string(pipeline_->status().message()), HasSubstr("worker 2 was lost"));

  Make("none");
  StartWhole();
  answer.term = 0;  // The term is not newer, so another worker holds the rank.
  pipeline_->Answer(0, answer, &effects_);
  ASSERT_FALSE(pipeline_->status().ok());
  EXPECT_FALSE(IsRollback(pipeline_->status()));
}

TEST_F(PipelineTest, AFailedEncoderFailsIt) {
  Make("int8");
  pipeline_->StartStep();
  ASSERT_TRUE(pipeline_->TensorReady(2, gradients_[2]).ok());
  const std::optional<EncodeTask> task = pipeline_->NextEncoding();
  EncodedBundle encoded = encoder_->Encode(*task);
  encoded.failure = absl::InternalError("the GPU is gone");
  pipeline_->Encoded(std::move(encoded), &effects_);
  EXPECT_EQ(Count<PipelineFailed>(), 1);
  EXPECT_EQ(Count<SendExchange>(), 0);
  EXPECT_EQ(pipeline_->status(), absl::InternalError("the GPU is gone"));
}

}  // namespace
}  // namespace sluice::worker
