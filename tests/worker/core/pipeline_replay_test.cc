// SPDX-License-Identifier: Apache-2.0
// Tests which requests a Pipeline sends when its shard restarts, and in which order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/core/one_worker.h"
#include "worker/core/pipeline.h"

namespace sluice::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kPipelineReplaySize = 16;  // Elements of each tensor; each is one bundle.
constexpr uint64_t kPipelineReplayPlenty = 1 << 20;

// One worker has two bundles on one shard.
class ReplayTest : public testing::Test {
 protected:
  void Make(uint64_t replay_bytes = kPipelineReplayPlenty, uint64_t first_step = 1,
            bool parameters_agree = true) {
    protocol::CompressionSpec compression;
    compression.uplink = *compress::ParseCodecSpec("none");
    compression.min_elements = 0;
    compression.layout = {.chunk_elements = kPipelineReplaySize,
                          .bundle_elements = kPipelineReplaySize};
    PipelineOptions options;
    for (const char* name : {"a", "b"}) {
      options.table.push_back({.name = name, .shape = {kPipelineReplaySize}, .strides = {}});
    }
    options.layout = *protocol::BuildLayout(options.table, 1, compression.layout);
    options.sender = {.job_uid = 7, .rank = 0, .incarnation = 3};
    options.first_step = first_step;
    options.parameters_agree = parameters_agree;
    options.replay_bytes = replay_bytes;
    options.window_bytes = window_bytes_;
    encoder_.emplace(options.table, options.layout, compression, 0);
    pipeline_.emplace(std::move(options));
    effects_.clear();
  }

  void Ready(uint32_t tensor) {
    gradient_[tensor].assign(kPipelineReplaySize,
                             static_cast<float>(pipeline_->step() * 10 + tensor));
    ASSERT_TRUE(pipeline_->TensorReady(tensor, gradient_[tensor]).ok());
    while (std::optional<EncodeTask> task = pipeline_->NextEncoding()) {
      pipeline_->Encoded(encoder_->Encode(*task), &effects_);
    }
  }
  void StartWhole() {
    pipeline_->StartStep();
    for (const uint32_t tensor : {1, 0}) Ready(tensor);
  }
  void FinishSteps(uint64_t last) {
    while (pipeline_->next_step() <= last) {
      StartWhole();
      AnswerAll(TakeSends());
      ASSERT_FALSE(pipeline_->step_open()) << pipeline_->status();
    }
    effects_.clear();
  }

  std::vector<std::shared_ptr<const protocol::ExchangeRequest>> TakeSends() {
    std::vector<std::shared_ptr<const protocol::ExchangeRequest>> sends = SentBy(effects_);
    effects_.clear();
    return sends;
  }
  // Formats requests as "12/0" (step/bundle), with a question mark if a request has only keys.
  static std::vector<std::string> Names(
      const std::vector<std::shared_ptr<const protocol::ExchangeRequest>>& sends) {
    std::vector<std::string> names;
    for (const auto& exchange : sends) {
      names.push_back(
          absl::StrCat(exchange->step, "/", exchange->bundle, exchange->keys_only ? "?" : ""));
    }
    return names;
  }
  std::vector<std::string> TakeNames() { return Names(TakeSends()); }
  template <typename Effect>
  std::vector<Effect> Of() const {
    std::vector<Effect> found;
    for (const PipelineEffect& effect : effects_) {
      if (const auto* of = std::get_if<Effect>(&effect)) found.push_back(*of);
    }
    return found;
  }

  void AnswerAll(const std::vector<std::shared_ptr<const protocol::ExchangeRequest>>& sends) {
    for (const auto& exchange : sends) pipeline_->Answer(0, ResultOf(*exchange), &effects_);
  }
  void Answer(protocol::Outcome outcome, uint64_t step, uint32_t bundle, uint64_t need_from = 0) {
    protocol::ExchangeReply answer;
    answer.outcome = outcome;
    answer.step = step;
    answer.bundle = bundle;
    answer.need_from = need_from;
    answer.message = "as the shard says";
    pipeline_->Answer(0, std::move(answer), &effects_);
  }
  void Need(uint64_t from) {
    const std::vector<SendExchange> sends = Of<SendExchange>();
    ASSERT_FALSE(sends.empty());
    const protocol::ExchangeRequest question = *sends.back().exchange;
    ASSERT_TRUE(question.keys_only);
    effects_.clear();
    Answer(protocol::Outcome::kNeed, question.step, question.bundle, from);
  }

  uint64_t window_bytes_ = 1 << 20;
  std::vector<float> gradient_[2];
  std::optional<BundleEncoder> encoder_;
  std::optional<Pipeline> pipeline_;
  Pipeline::Effects effects_;
};

TEST_F(ReplayTest, KeepsFromTheFirstStepOnUntilRelease) {
  Make(kPipelineReplayPlenty, /*first_step=*/4);
  EXPECT_EQ(pipeline_->replay_from(), 4u);
  FinishSteps(9);
  EXPECT_EQ(pipeline_->replay_from(), 4u);
  pipeline_->Release(6);
  EXPECT_EQ(pipeline_->replay_from(), 7u);
  pipeline_->Release(3);
  EXPECT_EQ(pipeline_->replay_from(), 7u);

  Make(0);
  FinishSteps(2);
  EXPECT_EQ(pipeline_->replay_from(), 0u);
}

TEST_F(ReplayTest, SendsStepByStepWhatTheShardLacksAsItWas) {
  Make();
  std::vector<std::shared_ptr<const protocol::ExchangeRequest>> first;
  for (int step = 1; step <= 4; ++step) {
    StartWhole();
    const auto sends = TakeSends();
    first.insert(first.end(), sends.begin(), sends.end());
    if (step < 4) AnswerAll(sends);
    effects_.clear();
  }
  pipeline_->StreamReset(0, &effects_);
  EXPECT_THAT(TakeNames(), ElementsAre("4/0", "4/1"));
  pipeline_->ShardReplaced(0, &effects_);
  ASSERT_EQ(Of<SendExchange>().size(), 1u);
  EXPECT_GT(Of<SendExchange>()[0].exchange->step, 5u);
  effects_.clear();
  Answer(protocol::Outcome::kNeed, 4, 0, /*need_from=*/2);
  ASSERT_EQ(Of<ReplayBegun>().size(), 1u);
  EXPECT_EQ(Of<ReplayBegun>()[0].from, 2u);
  EXPECT_EQ(Of<ReplayBegun>()[0].to, 4u);
  // The other outstanding requests get the same answer, which changes nothing.
  Answer(protocol::Outcome::kNeed, 4, 1, /*need_from=*/2);
  Answer(protocol::Outcome::kNeed, 7, 0, /*need_from=*/2);
  std::vector<std::shared_ptr<const protocol::ExchangeRequest>> again;
  for (const uint64_t step : {2, 3}) {
    const auto sends = TakeSends();
    EXPECT_THAT(Names(sends), ElementsAre(absl::StrCat(step, "/0"), absl::StrCat(step, "/1")));
    again.insert(again.end(), sends.begin(), sends.end());
    Answer(protocol::Outcome::kPending, step, 1);
    pipeline_->Answer(0, ResultOf(*sends[1]), &effects_);
    EXPECT_THAT(TakeNames(), IsEmpty());
    pipeline_->Answer(0, ResultOf(*sends[0]), &effects_);
  }
  for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i], first[i + 2]);
  const auto open = TakeSends();
  EXPECT_THAT(Names(open), ElementsAre("4/0", "4/1"));
  AnswerAll(open);
  EXPECT_EQ(Of<StepDone>().size(), 1u);
  FinishSteps(6);
}

TEST_F(ReplayTest, WhatIsResolvedOfTheOpenStepIsSentAgainToo) {
  Make();
  FinishSteps(2);
  StartWhole();
  const auto sends = TakeSends();
  pipeline_->Answer(0, ResultOf(*sends[0]), &effects_);
  pipeline_->StreamReset(0, &effects_);
  EXPECT_THAT(TakeNames(), ElementsAre("3/1"));
  pipeline_->ShardReplaced(0, &effects_);
  Answer(protocol::Outcome::kPending, 3, 1);
  Need(3);
  const auto again = TakeSends();
  EXPECT_EQ(again, sends);
  pipeline_->Answer(0, ResultOf(*sends[1]), &effects_);
  EXPECT_FALSE(pipeline_->step_open());
  // The next step must wait for the missing requests of the previous steps.
  pipeline_->StartStep();
  Ready(1);
  EXPECT_THAT(TakeNames(), IsEmpty());
  pipeline_->Answer(0, ResultOf(*sends[0]), &effects_);
  EXPECT_THAT(TakeNames(), ElementsAre("4/0"));
  Ready(0);
  EXPECT_THAT(TakeNames(), ElementsAre("4/1"));
}

TEST_F(ReplayTest, BetweenStepsItHearsOfAReplacedShardToo) {
  Make();
  FinishSteps(3);
  pipeline_->StreamReset(0, &effects_);
  EXPECT_THAT(TakeNames(), ElementsAre("3/1?"));
  pipeline_->ShardReplaced(0, &effects_);
  Need(3);
  EXPECT_THAT(TakeNames(), ElementsAre("3/0", "3/1"));

  // If the shard is the same process, the pipeline resends nothing.
  Make();
  FinishSteps(3);
  pipeline_->StreamReset(0, &effects_);
  const auto probe = TakeSends();
  protocol::ExchangeReply answer = ResultOf(*probe[0]);
  answer.results.clear();
  effects_.clear();
  StartWhole();
  AnswerAll(TakeSends());
  EXPECT_EQ(pipeline_->step(), 4u);
  EXPECT_FALSE(pipeline_->step_open());
}

// Between steps, a process without an incarnation answers BUSY, which does not show whether the
// process is new. Other workers may need the old process's state, so this worker must ask again
// without waiting for its next step.
TEST_F(ReplayTest, BetweenStepsAShardThatCannotSayWhichItIsIsAskedAgain) {
  Make();
  FinishSteps(3);
  pipeline_->StartStep();
  pipeline_->StreamReset(0, &effects_);
  EXPECT_THAT(TakeNames(), ElementsAre("3/1?"));
  for (int i = 0; i < 20; ++i) {
    Answer(protocol::Outcome::kBusy, 3, 1);
    EXPECT_EQ(Of<RetryLater>().size(), 1u);
    effects_.clear();
    pipeline_->RetryDue(0, &effects_);
    ASSERT_THAT(TakeNames(), ElementsAre("3/1?"));
  }
  pipeline_->ShardReplaced(0, &effects_);
  Need(1);
  EXPECT_THAT(TakeNames(), ElementsAre("1/0", "1/1"));
  EXPECT_TRUE(pipeline_->status().ok()) << pipeline_->status();
}

// A request of the next step replaces the question, because its answer also shows which process
// serves the shard.
TEST_F(ReplayTest, WorkTakesThePlaceOfTheQuestion) {
  Make();
  FinishSteps(3);
  pipeline_->StartStep();
  pipeline_->StreamReset(0, &effects_);
  Answer(protocol::Outcome::kBusy, 3, 1);
  effects_.clear();
  for (const uint32_t tensor : {1, 0}) Ready(tensor);
  EXPECT_THAT(TakeNames(), IsEmpty());
  pipeline_->RetryDue(0, &effects_);
  const auto sends = TakeSends();
  EXPECT_THAT(Names(sends), ElementsAre("4/0", "4/1"));
  Answer(protocol::Outcome::kBusy, 3, 1);
  EXPECT_THAT(effects_, IsEmpty()) << "the shard received the question twice";
  AnswerAll(sends);
  EXPECT_FALSE(pipeline_->step_open());
}

TEST_F(ReplayTest, NothingWasSentYet) {
  Make();
  pipeline_->StreamReset(0, &effects_);
  pipeline_->ShardReplaced(0, &effects_);
  EXPECT_TRUE(effects_.empty());
  FinishSteps(1);
}

TEST_F(ReplayTest, NothingIsLost) {
  Make();
  FinishSteps(2);
  pipeline_->StartStep();
  pipeline_->ShardReplaced(0, &effects_);
  Ready(1);
  EXPECT_EQ(Of<SendExchange>().size(), 1u);  // The probe.
  Answer(protocol::Outcome::kNeed, 6, 0, /*need_from=*/3);
  EXPECT_THAT(Of<ReplayBegun>(), IsEmpty());
  EXPECT_THAT(Names(TakeSends()).back(), "3/0");
}

TEST_F(ReplayTest, ItIsReplacedAgainInTheMiddle) {
  Make();
  FinishSteps(3);
  StartWhole();
  effects_.clear();
  pipeline_->ShardReplaced(0, &effects_);
  Need(1);
  AnswerAll(TakeSends());
  EXPECT_THAT(TakeNames(), ElementsAre("2/0", "2/1"));
  pipeline_->StreamReset(0, &effects_);
  EXPECT_THAT(TakeNames(), ElementsAre("2/0", "2/1"));
  pipeline_->ShardReplaced(0, &effects_);
  Need(1);
  for (int step = 1; step <= 4; ++step) {
    const auto sends = TakeSends();
    EXPECT_THAT(Names(sends), ElementsAre(absl::StrCat(step, "/0"), absl::StrCat(step, "/1")));
    AnswerAll(sends);
  }
  EXPECT_FALSE(pipeline_->step_open());
}

TEST_F(ReplayTest, AShardThatIsNotStartedYetIsAskedAgain) {
  Make();
  FinishSteps(2);
  pipeline_->ShardReplaced(0, &effects_);
  const auto question = TakeSends();
  Answer(protocol::Outcome::kBusy, 2, 1);
  Answer(protocol::Outcome::kBusy, question[0]->step, 0);
  EXPECT_EQ(Of<RetryLater>().size(), 1u);
  effects_.clear();
  pipeline_->RetryDue(0, &effects_);
  EXPECT_EQ(Names(Of<SendExchange>().empty() ? question : TakeSends()), Names(question));
  pipeline_->StreamReset(0, &effects_);
  Need(1);
  EXPECT_THAT(TakeNames(), ElementsAre("1/0", "1/1"));
  Answer(protocol::Outcome::kBusy, question[0]->step, 0);
  EXPECT_TRUE(pipeline_->status().ok())
      << "the shard received the question twice: " << pipeline_->status();
}

TEST_F(ReplayTest, TheWindowHoldsForWhatIsSentAgain) {
  window_bytes_ = 1;
  Make();
  for (int i = 0; i < 2; ++i) {
    StartWhole();
    for (int bundle = 0; bundle < 2; ++bundle) AnswerAll(TakeSends());
  }
  effects_.clear();
  StartWhole();
  EXPECT_THAT(TakeNames(), ElementsAre("3/0"));
  // The credits of requests that the old shard had not admitted must be returned.
  pipeline_->ShardReplaced(0, &effects_);
  Need(1);
  EXPECT_THAT(TakeNames(), ElementsAre("1/0"));
  Answer(protocol::Outcome::kPending, 1, 0);
  EXPECT_THAT(TakeNames(), ElementsAre("1/1"));
  Answer(protocol::Outcome::kBusy, 1, 1);
  effects_.clear();
  pipeline_->RetryDue(0, &effects_);
  EXPECT_THAT(TakeNames(), ElementsAre("1/1"));
}

TEST_F(ReplayTest, ABundleMayBeEncodedMeanwhile) {
  Make();
  FinishSteps(1);
  pipeline_->StartStep();
  Ready(1);
  gradient_[0].assign(kPipelineReplaySize, 3.0f);
  ASSERT_TRUE(pipeline_->TensorReady(0, gradient_[0]).ok());
  std::optional<EncodeTask> task = pipeline_->NextEncoding();
  ASSERT_TRUE(task.has_value());
  effects_.clear();
  pipeline_->ShardReplaced(0, &effects_);
  Need(1);
  const auto sends = TakeSends();
  EXPECT_THAT(Names(sends), ElementsAre("1/0", "1/1"));
  pipeline_->Encoded(encoder_->Encode(*task), &effects_);
  EXPECT_THAT(TakeNames(), IsEmpty());
  AnswerAll(sends);
  EXPECT_THAT(TakeNames(), ElementsAre("2/0", "2/1"));
}

TEST_F(ReplayTest, AnotherResultThanBeforeIsAnAlarm) {
  Make();
  FinishSteps(1);
  StartWhole();
  const auto second = TakeSends();
  AnswerAll(second);
  effects_.clear();
  pipeline_->ShardReplaced(0, &effects_);
  Need(2);
  protocol::ExchangeReply other = ResultOf(*second[0]);
  other.results = second[1]->frames;
  other.record.result_checksum = protocol::BundleChecksum(other.results);
  pipeline_->Answer(0, other, &effects_);
  EXPECT_TRUE(absl::IsDataLoss(pipeline_->status())) << pipeline_->status();
  EXPECT_THAT(std::string(pipeline_->status().message()),
              AllOf(HasSubstr("shard 0 closed step 2"), HasSubstr("bundle 0 differently")));
}

TEST_F(ReplayTest, WhatIsGoneIsTakenUpFromTheCheckpoint) {
  Make();
  FinishSteps(4);
  pipeline_->Release(2);
  pipeline_->ShardReplaced(0, &effects_);
  Need(2);
  EXPECT_TRUE(IsRollback(pipeline_->status())) << pipeline_->status();
  EXPECT_THAT(std::string(pipeline_->status().message()), HasSubstr("asks for step 2"));
  EXPECT_THAT(std::string(pipeline_->status().message()), HasSubstr("from step 3 on"));

  Make(/*replay_bytes=*/100);  // Less than one step.
  FinishSteps(4);
  EXPECT_EQ(pipeline_->replay_from(), 4u);
  pipeline_->ShardReplaced(0, &effects_);
  Need(3);
  EXPECT_TRUE(IsRollback(pipeline_->status())) << pipeline_->status();
}

// The shard restarted from the previous checkpoint. Contributions of the newer checkpoint's steps
// must be kept until the replay is over.
TEST_F(ReplayTest, NothingIsLetGoWhileAShardNeedsIt) {
  Make();
  FinishSteps(3);
  pipeline_->ShardReplaced(0, &effects_);
  pipeline_->Release(2);
  Need(1);
  EXPECT_EQ(pipeline_->replay_from(), 1u);
  for (int step = 1; step <= 3; ++step) {
    pipeline_->Release(2);
    AnswerAll(TakeSends());
  }
  ASSERT_TRUE(pipeline_->status().ok()) << pipeline_->status();
  EXPECT_EQ(pipeline_->replay_from(), 3u);
}

// Results for the previous worker of the rank must not change the pipeline.
TEST_F(ReplayTest, ResultsThatCameOfAPredecessorsWorkAreNotAwaited) {
  Make(kPipelineReplayPlenty, /*first_step=*/3);
  pipeline_->StartStep();
  Ready(1);
  const auto sends = TakeSends();
  protocol::ExchangeRequest other = *sends[0];
  for (const auto& [step, bundle] : {std::pair{3, 1}, {4, 0}, {9, 1}}) {
    other.step = static_cast<uint64_t>(step);
    other.bundle = static_cast<uint32_t>(bundle);
    pipeline_->Answer(0, ResultOf(other), &effects_);
  }
  EXPECT_TRUE(effects_.empty());
  AnswerAll(sends);
  Ready(0);
  AnswerAll(TakeSends());
  EXPECT_FALSE(pipeline_->step_open());
}

TEST_F(ReplayTest, AnswersThatAreLateChangeNothing) {
  Make();
  FinishSteps(2);
  StartWhole();
  effects_.clear();
  pipeline_->StreamReset(0, &effects_);
  effects_.clear();
  pipeline_->ShardReplaced(0, &effects_);
  for (const protocol::Outcome outcome :
       {protocol::Outcome::kInvalid, protocol::Outcome::kPending}) {
    for (const uint64_t step : {1, 2, 3}) Answer(outcome, step, 0);
  }
  ASSERT_TRUE(pipeline_->status().ok()) << pipeline_->status();
  Need(2);
  for (const protocol::Outcome outcome :
       {protocol::Outcome::kInvalid, protocol::Outcome::kNeed, protocol::Outcome::kPending}) {
    for (const uint64_t step : {1, 3}) Answer(outcome, step, 0, 2);
  }
  EXPECT_THAT(TakeNames(), ElementsAre("2/0", "2/1"));
  EXPECT_TRUE(pipeline_->status().ok()) << pipeline_->status();
}

TEST_F(ReplayTest, ACheckpointAheadOfThisWorkerMakesItJoinAgain) {
  Make();
  FinishSteps(1);
  StartWhole();
  effects_.clear();
  pipeline_->ShardReplaced(0, &effects_);
  Need(5);
  EXPECT_THAT(TakeNames(), ElementsAre("2/0", "2/1"));
  Answer(protocol::Outcome::kNeed, 2, 0, /*need_from=*/5);
  EXPECT_TRUE(IsRollback(pipeline_->status())) << pipeline_->status();
}

TEST_F(ReplayTest, WithoutABufferAReplacedShardIsNoMatter) {
  Make(0);
  FinishSteps(2);
  pipeline_->StreamReset(0, &effects_);
  pipeline_->ShardReplaced(0, &effects_);
  EXPECT_TRUE(effects_.empty());
  StartWhole();
  TakeSends();
  pipeline_->StreamReset(0, &effects_);
  EXPECT_THAT(TakeNames(), ElementsAre("3/0", "3/1"));
  pipeline_->ShardReplaced(0, &effects_);
  EXPECT_TRUE(effects_.empty());
}

// The question was repeated after a stream broke. The answers to the repeat arrive after the replay
// has begun and must change nothing.
TEST_F(ReplayTest, WhatAnswersAQuestionTheSecondTimeChangesNothing) {
  Make();
  FinishSteps(3);
  StartWhole();
  effects_.clear();
  pipeline_->ShardReplaced(0, &effects_);
  pipeline_->StreamReset(0, &effects_);
  ASSERT_THAT(TakeNames(), ElementsAre("7/0?", "7/0?"));
  Answer(protocol::Outcome::kNeed, 7, 0, /*need_from=*/4);
  EXPECT_THAT(TakeNames(), ElementsAre("4/0", "4/1"));
  for (const protocol::Outcome outcome :
       {protocol::Outcome::kBusy, protocol::Outcome::kInvalid, protocol::Outcome::kPending}) {
    Answer(outcome, 7, 0);
    EXPECT_TRUE(pipeline_->status().ok()) << pipeline_->status();
    EXPECT_THAT(effects_, IsEmpty());
  }
  Answer(protocol::Outcome::kInvalid, 8, 0);
  EXPECT_FALSE(pipeline_->status().ok()) << "this question was never asked";
}

}  // namespace
}  // namespace sluice::worker
