#include "worker/core/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/frame.h"
#include "tests/worker/one_worker.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kSize = 64;  // Elements of each tensor; each is one bundle.

// Tensors a, b, c on one shard: bundle 0 is c, 1 is b, 2 is a.
class PipelineTest : public testing::Test {
 protected:
  void Make(absl::string_view uplink, uint64_t window_bytes = 1 << 20, uint32_t world_size = 1,
            bool parameters_agree = true, uint64_t first_step = 1, bool quorum = false) {
    CompressionSpec compression;
    compression.uplink = *ParseCodecSpec(uplink);
    compression.min_elements = 0;
    compression.layout = {.chunk_elements = kSize, .bundle_elements = kSize};
    PipelineOptions options;
    for (const char* name : {"a", "b", "c"}) {
      options.table.push_back({.name = name, .shape = {kSize}, .strides = {}});
    }
    options.layout = *BuildLayout(options.table, 1, compression.layout);
    options.sender = {.job_uid = 7, .rank = 0, .incarnation = 3};
    options.world_size = world_size;
    options.window_bytes = window_bytes;
    options.parameters_agree = parameters_agree;
    options.first_step = first_step;
    options.quorum = quorum;
    encoder_.emplace(options.table, options.layout, compression, options.sender.rank);
    pipeline_.emplace(std::move(options));
    for (uint32_t tensor = 0; tensor < 3; ++tensor) {
      gradients_[tensor].resize(kSize);
      for (size_t i = 0; i < kSize; ++i) {
        gradients_[tensor][i] = static_cast<float>(i) - 10.5f * static_cast<float>(tensor);
      }
    }
  }

  void Ready(uint32_t tensor) {
    ASSERT_TRUE(pipeline_->TensorReady(tensor, gradients_[tensor]).ok());
    while (std::optional<EncodeTask> task = pipeline_->NextEncoding()) {
      pipeline_->Encoded(encoder_->Encode(*task), &effects_);
    }
  }
  void StartWhole() {
    pipeline_->StartStep();
    for (const uint32_t tensor : {2, 1, 0}) Ready(tensor);
  }

  // What was sent since the last call.
  std::vector<std::shared_ptr<const Exchange>> TakeSends() {
    std::vector<std::shared_ptr<const Exchange>> sends = SentBy(effects_);
    effects_.clear();
    return sends;
  }
  std::vector<uint32_t> TakeSentBundles() {
    std::vector<uint32_t> bundles;
    for (const auto& exchange : TakeSends()) bundles.push_back(exchange->bundle);
    return bundles;
  }
  template <typename Effect>
  int Count() const {
    int count = 0;
    for (const PipelineEffect& effect : effects_) count += std::holds_alternative<Effect>(effect);
    return count;
  }

  void Answer(Outcome outcome, uint64_t step, uint32_t bundle, std::string message = "") {
    ExchangeAnswer answer;
    answer.outcome = outcome;
    answer.step = step;
    answer.bundle = bundle;
    answer.retry_after_ms = 30;
    answer.message = std::move(message);
    pipeline_->Answer(0, answer, &effects_);
  }
  void AnswerAll(const std::vector<std::shared_ptr<const Exchange>>& sends) {
    for (const auto& exchange : sends) pipeline_->Answer(0, ResultOf(*exchange), &effects_);
  }
  void FinishStep() {
    StartWhole();
    AnswerAll(TakeSends());
    ASSERT_FALSE(pipeline_->step_open());
    effects_.clear();
  }

  std::vector<float> gradients_[3];
  std::optional<BundleEncoder> encoder_;
  std::optional<Pipeline> pipeline_;
  Pipeline::Effects effects_;
};

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
  Make("none", 2 * (4 * kSize + kFrameHeaderSize));
  StartWhole();
  EXPECT_THAT(TakeSentBundles(), ElementsAre(0, 1));
  Answer(Outcome::kPending, 1, 1);
  EXPECT_THAT(TakeSentBundles(), ElementsAre(2));
}

TEST_F(PipelineTest, OneBundleMayAlwaysFly) {
  Make("none", 1);
  StartWhole();
  EXPECT_THAT(TakeSentBundles(), ElementsAre(0));
  Answer(Outcome::kPending, 1, 0);
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
  Answer(Outcome::kPending, 1, 2);
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
  Answer(Outcome::kPending, 1, 0);
  Answer(Outcome::kPending, 1, 1);
  Answer(Outcome::kPending, 1, 2);
  effects_.clear();
  pipeline_->StreamReset(0, &effects_);
  EXPECT_THAT(TakeSentBundles(), ElementsAre(0));
  // From the old stream: what waits to be repeated must be repeated all the same.
  Answer(Outcome::kPending, 1, 1);
  EXPECT_THAT(TakeSentBundles(), IsEmpty());
  Answer(Outcome::kPending, 1, 0);
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
  ASSERT_TRUE(pipeline_->DecodeMean(1, absl::MakeSpan(mean)).ok());
  EXPECT_THAT(mean, testing::Each(0.0f));
}

TEST_F(PipelineTest, MeansAreWhatWasAnswered) {
  Make("none");
  FinishStep();
  for (uint32_t tensor = 0; tensor < 3; ++tensor) {
    std::vector<float> mean(kSize, 9.0f);
    ASSERT_TRUE(pipeline_->DecodeMean(tensor, absl::MakeSpan(mean)).ok());
    EXPECT_EQ(mean, gradients_[tensor]);
  }
  std::vector<float> wrong(kSize + 1);
  EXPECT_EQ(pipeline_->DecodeMean(0, absl::MakeSpan(wrong)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(PipelineTest, MeansAreAddedToWhatIsThere) {
  for (const char* spec : {"none", "topk:20%"}) {
    SCOPED_TRACE(spec);
    Make(spec);
    FinishStep();
    for (uint32_t tensor = 0; tensor < 3; ++tensor) {
      std::vector<float> mean(kSize), values(kSize, 9.0f), expected(kSize, 9.0f);
      ASSERT_TRUE(pipeline_->DecodeMean(tensor, absl::MakeSpan(mean)).ok());
      for (size_t i = 0; i < kSize; ++i) {
        const float scaled = -0.3f * mean[i];
        expected[i] += scaled;
      }
      ASSERT_TRUE(pipeline_->AddMean(tensor, -0.3f, absl::MakeSpan(values)).ok());
      EXPECT_EQ(values, expected) << tensor;
    }
    std::vector<float> wrong(kSize + 1);
    EXPECT_EQ(pipeline_->AddMean(0, 1, absl::MakeSpan(wrong)).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(PipelineTest, RepeatedAnswersChangeNothing) {
  Make("none");
  StartWhole();
  const auto first = TakeSends();
  pipeline_->Answer(0, ResultOf(*first[0]), &effects_);
  ExchangeAnswer other = ResultOf(*first[0]);
  other.results = first[1]->frames;
  other.record.result_checksum = BundleChecksum(other.results);
  pipeline_->Answer(0, other, &effects_);
  Answer(Outcome::kPending, 1, 0);
  Answer(Outcome::kInvalid, 1, 0, "late");
  AnswerAll(first);
  EXPECT_EQ(Count<StepDone>(), 1);
  std::vector<float> mean(kSize);
  ASSERT_TRUE(pipeline_->DecodeMean(2, absl::MakeSpan(mean)).ok());
  EXPECT_EQ(mean, gradients_[2]);
  // And those of an older step.
  StartWhole();
  effects_.clear();
  AnswerAll(first);
  Answer(Outcome::kInvalid, 1, 1, "step 1 is over");
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
  Answer(Outcome::kBusy, 1, 1);
  ASSERT_EQ(Count<RetryLater>(), 1);
  EXPECT_EQ(std::get<RetryLater>(effects_[0]).delay, absl::Milliseconds(30));
  Answer(Outcome::kBusy, 1, 2);
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
  Answer(Outcome::kNeed, 1, 1);
  EXPECT_THAT(TakeSentBundles(), ElementsAre(1));
  for (int i = 0; i < 100 && pipeline_->status().ok(); ++i) Answer(Outcome::kNeed, 1, 1);
  EXPECT_THAT(std::string(pipeline_->status().message()), HasSubstr("bundle 1 of shard 0"));
}

TEST_F(PipelineTest, RefusalsAreFinalAndSayWhatTheShardSaid) {
  for (const Outcome outcome : {Outcome::kInvalid, Outcome::kFenced}) {
    Make("none");
    StartWhole();
    effects_.clear();
    Answer(outcome, 1, 1, "chunk 4 has a bad scale");
    ASSERT_EQ(Count<PipelineFailed>(), 1);
    EXPECT_THAT(std::string(pipeline_->status().message()), HasSubstr("chunk 4 has a bad scale"));
    EXPECT_THAT(std::string(pipeline_->status().message()), HasSubstr("shard 0"));
    effects_.clear();
    pipeline_->StreamReset(0, &effects_);
    Answer(Outcome::kBusy, 1, 2);
    EXPECT_TRUE(effects_.empty());
    EXPECT_EQ(pipeline_->TensorReady(0, gradients_[0]), pipeline_->status());
  }
}

TEST_F(PipelineTest, AnAnswerToNothingIsAnError) {
  for (const auto& [step, bundle] : {std::pair{1, 1}, {1, 3}, {2, 0}}) {
    Make("none");
    pipeline_->StartStep();
    Ready(2);
    Answer(Outcome::kPending, step, bundle);
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
  EXPECT_EQ(pipeline_->Result().bundles_skipped_here, 0u);
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
  ASSERT_TRUE(pipeline_->DecodeMean(0, absl::MakeSpan(mean)).ok());
  EXPECT_EQ(mean, gradients_[0]);
}

TEST_F(PipelineTest, ACheckpointNamedByShardZeroIsSaidToAllAndDueOnce) {
  Make("none");
  StartWhole();
  const auto first = TakeSends();
  EXPECT_EQ(first[0]->checkpoint_step, 0u);
  ExchangeAnswer named = ResultOf(*first[0]);
  named.checkpoint_step = 3;
  pipeline_->Answer(0, named, &effects_);
  // One without the name: of a shard that was not told, or on the way since before.
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
  ExchangeAnswer answer = ResultOf(*sends[0]);
  answer.checkpoint_step = 4;
  pipeline_->Answer(0, answer, &effects_);
  answer.checkpoint_step = 3;  // A repeat, from before.
  pipeline_->Answer(0, answer, &effects_);
  pipeline_->Answer(0, ResultOf(*sends[1]), &effects_);
  pipeline_->Answer(0, ResultOf(*sends[2]), &effects_);
  StartWhole();
  EXPECT_EQ(TakeSends()[0]->checkpoint_step, 4u);
}

// A worker that goes through its steps anew hears of names that were given later, and a shard that
// does so too would take them for a mistake.
TEST_F(PipelineTest, SaysTheNameOfACheckpointInTheLastThreeStepsOnly) {
  Make("none");
  for (uint64_t step = 1; step <= 8; ++step) {
    StartWhole();
    for (const auto& send : TakeSends()) {
      EXPECT_EQ(send->checkpoint_step, step >= 5 && step <= 7 ? 7u : 0u) << "step " << step;
      ExchangeAnswer answer = ResultOf(*send);
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
      *BuildLayout(options.table, 2, {.chunk_elements = kSize, .bundle_elements = kSize});
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
      ExchangeAnswer answer = ResultOf(*send.exchange);
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
  // Results stay there to be applied.
  std::vector<float> mean(kSize);
  ASSERT_TRUE(pipeline_->DecodeMean(0, absl::MakeSpan(mean)).ok());
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
  // Nothing is published: what the tasks had does not come again.
  for (const auto& exchange : TakeSends()) {
    Exchange skip = *exchange;
    skip.skip = true;
    ExchangeAnswer answer = ResultOf(skip);
    answer.results.clear();
    answer.record.result_checksum = BundleChecksum(std::vector<std::string>());
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
  ExchangeAnswer answer;
  answer.outcome = Outcome::kFenced;
  answer.term = 1;
  answer.message = "worker 2 was lost";
  pipeline_->Answer(0, answer, &effects_);
  EXPECT_TRUE(IsRollback(pipeline_->status()));
  EXPECT_THAT(std::string(pipeline_->status().message()), HasSubstr("worker 2 was lost"));

  Make("none");
  StartWhole();
  answer.term = 0;  // Its own: another holds the rank.
  pipeline_->Answer(0, answer, &effects_);
  ASSERT_FALSE(pipeline_->status().ok());
  EXPECT_FALSE(IsRollback(pipeline_->status()));
}

class CheckpointedCodecTest : public PipelineTest, public testing::WithParamInterface<const char*> {
 protected:
  // The frames of the next `steps` steps.
  std::vector<std::string> Frames(int steps) {
    std::vector<std::string> frames;
    for (int i = 0; i < steps; ++i) {
      // So that what one step publishes matters to the next.
      for (std::vector<float>& gradient : gradients_) {
        for (size_t at = 0; at < kSize; ++at) {
          gradient[at] = std::ldexp(static_cast<float>(at) - 20.5f,
                                    3 * static_cast<int>(pipeline_->next_step()));
        }
      }
      StartWhole();
      const auto sends = TakeSends();
      for (const auto& exchange : sends) {
        frames.insert(frames.end(), exchange->frames.begin(), exchange->frames.end());
      }
      AnswerAll(sends);
      effects_.clear();
    }
    return frames;
  }
};

// Step 2 is the checkpoint's. A run that takes none goes on with the same bytes, too.
TEST_P(CheckpointedCodecTest, GoesOnWithTheSameBytes) {
  Make(GetParam());
  (void)Frames(2);
  const std::vector<std::string> plain = Frames(3);

  Make(GetParam());
  (void)Frames(2);
  for (const Published& bundle : pipeline_->TakePublished()) {
    encoder_->Observe(bundle.chunks, bundle.frames);
  }
  const SavedCompressor saved = encoder_->Save();
  const std::vector<std::string> undisturbed = Frames(3);

  Make(GetParam(), 1 << 20, 1, true, /*first_step=*/3);
  ASSERT_TRUE(encoder_->Restore(saved).ok());
  EXPECT_EQ(Frames(3), undisturbed);
  EXPECT_EQ(undisturbed, plain);
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointedCodecTest,
                         testing::Values("none", "topk:5%", "intsum:8", "intsum:2", "topk:10%/ef21",
                                         "qsgd:4/diana"),
                         [](const testing::TestParamInfo<const char*>& c) {
                           return absl::StrCat("Spec", c.index);
                         });

struct WrongResult {
  const char* name;
  const char* says;
  std::function<void(ExchangeAnswer*)> change;
};

class WrongResultTest : public PipelineTest, public testing::WithParamInterface<WrongResult> {};

TEST_P(WrongResultTest, IsAnErrorThatSaysWhat) {
  Make("none", 1 << 20, /*world_size=*/2);
  StartWhole();
  ExchangeAnswer answer = ResultOf(*TakeSends()[1]);
  answer.record.included.push_back({.rank = 1, .origin_step = 1, .checksum = 5, .skipped = true});
  GetParam().change(&answer);
  pipeline_->Answer(0, answer, &effects_);
  ASSERT_EQ(Count<PipelineFailed>(), 1);
  const std::string message(pipeline_->status().message());
  EXPECT_THAT(message, HasSubstr("shard 0 sent a wrong result for bundle 1 of shard 0 at step 1"));
  EXPECT_THAT(message, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongResultTest,
    testing::Values(
        WrongResult{"ResultChecksum", "its record says",
                    [](ExchangeAnswer* a) { a->record.result_checksum ^= 1; }},
        WrongResult{"Bit", "frame 0, for b", [](ExchangeAnswer* a) { a->results[0][40] ^= 4; }},
        WrongResult{"FrameMissing", "0 frames", [](ExchangeAnswer* a) { a->results.clear(); }},
        WrongResult{"Divisor", "divides by 2", [](ExchangeAnswer* a) { a->record.n = 2; }},
        WrongResult{"OtherStep", "at step 9", [](ExchangeAnswer* a) { a->record.step = 9; }},
        WrongResult{"OtherBundle", "of bundle 0", [](ExchangeAnswer* a) { a->record.bundle = 0; }},
        WrongResult{"OtherTerm", "term 4", [](ExchangeAnswer* a) { a->record.term = 4; }},
        WrongResult{"NotOurBytes", "this worker sent",
                    [](ExchangeAnswer* a) { a->record.included[0].checksum ^= 1; }},
        WrongResult{"WithoutUs", "leaves rank 0 out",
                    [](ExchangeAnswer* a) {
                      a->record.included.erase(a->record.included.begin());
                      a->record.n = 0;
                    }},
        WrongResult{
            "OutOfOrder", "rank 0 out of order",
            [](ExchangeAnswer* a) { std::swap(a->record.included[0], a->record.included[1]); }},
        WrongResult{"OfAnotherStep", "work of rank 1 for step 0",
                    [](ExchangeAnswer* a) { a->record.included[1].origin_step = 0; }},
        WrongResult{"Stranger", "no worker",
                    [](ExchangeAnswer* a) { a->record.included[1].rank = 2; }}),
    [](const testing::TestParamInfo<WrongResult>& c) { return std::string(c.param.name); });

// A step of a job with a quorum that closed without this worker, with what rank 1 sent for the step
// before and for this one.
class QuorumRecordTest : public PipelineTest {
 protected:
  ExchangeAnswer LeftOut() {
    Make("none", 1 << 20, /*world_size=*/2, true, 1, /*quorum=*/true);
    FinishStep();
    StartWhole();
    ExchangeAnswer answer = ResultOf(*TakeSends()[1]);
    answer.record.included = {{.rank = 1, .origin_step = 1, .checksum = 5, .skipped = false},
                              {.rank = 1, .origin_step = 2, .checksum = 6, .skipped = false}};
    answer.record.n = 2;
    answer.open_step = 5;
    return answer;
  }
};

TEST_F(QuorumRecordTest, MayLeaveThisWorkerOut) {
  ExchangeAnswer answer = LeftOut();
  for (const uint32_t bundle : {0, 1, 2}) {
    answer.bundle = answer.record.bundle = bundle;
    pipeline_->Answer(0, answer, &effects_);
  }
  ASSERT_FALSE(pipeline_->step_open()) << pipeline_->status();
  EXPECT_EQ(pipeline_->Result().steps_behind, 2u) << "3 and 4 are closed";
  EXPECT_EQ(pipeline_->Result().n_max, 2u);
}

TEST_F(QuorumRecordTest, TellsNothingOfLaterStepsAndNothingTwice) {
  ExchangeAnswer answer = LeftOut();
  answer.record.included[1].origin_step = 3;
  pipeline_->Answer(0, answer, &effects_);
  EXPECT_THAT(pipeline_->status().message(), HasSubstr("work of rank 1 for step 3"));
  answer = LeftOut();
  answer.record.included[1].origin_step = 1;
  pipeline_->Answer(0, answer, &effects_);
  EXPECT_THAT(pipeline_->status().message(), HasSubstr("out of order"));
}

}  // namespace
}  // namespace sluice
