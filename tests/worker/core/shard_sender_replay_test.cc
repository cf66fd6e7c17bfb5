// SPDX-License-Identifier: Apache-2.0
// Tests what a ShardSender asks and resends when another process serves its shard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/compression_plan.h"
#include "tests/worker/core/shard_sender_fixture.h"
#include "worker/core/session.h"
#include "worker/core/shard_sender.h"

namespace sluice::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ShardReplayTest : public ShardSenderTest {};

TEST_F(ShardReplayTest, ANewProcessIsAskedBeforeAnythingIsSent) {
  Make();
  FinishSteps(3);
  Start();
  Send(0);
  effects_.clear();
  sender_->ShardReplaced(&effects_);
  EXPECT_TRUE(sender_->is_replaying());
  EXPECT_EQ(sender_->bytes_in_flight(), 0u);
  Send(1);
  sender_->StreamReset(&effects_);
  Hear(Outcome::kBusy, 7, 0);
  sender_->RetryDue(&effects_);
  EXPECT_EQ(TakeSent(), "7/0? 7/0? 7/0?");
  // The shard lacks nothing that was sent.
  EXPECT_EQ(Hear(Outcome::kNeed, 7, 0, /*need_from=*/5), News::kReplayEnded);
  EXPECT_FALSE(sender_->is_replaying());
  EXPECT_EQ(TakeSent(), "4/0 4/1");
  // The answers to the other two questions change nothing.
  EXPECT_EQ(Hear(Outcome::kNeed, 7, 0, /*need_from=*/1), News::kNone);
  EXPECT_EQ(Hear(Outcome::kBusy, 7, 0), News::kNone);
  EXPECT_THAT(effects_, IsEmpty());
  EXPECT_TRUE(absl::IsInternal(Failure(Outcome::kBusy, 8, 0))) << "the worker made no such request";
}

TEST_F(ShardReplayTest, WithoutKeptContributionsANewProcessIsNotAsked) {
  Make(1 << 20, /*replay_bytes=*/0);
  FinishSteps(1);
  sender_->ShardReplaced(&effects_);
  EXPECT_THAT(effects_, IsEmpty());
  EXPECT_FALSE(sender_->is_replaying());
}

TEST_F(ShardReplayTest, ANewProcessMayRequestABundleAsOftenAsTheOldOne) {
  Make();
  Start();
  Send(0);
  for (int i = 0; i < 8; ++i) Hear(Outcome::kNeed, 1, 0);
  Replace(/*from=*/1);
  for (int i = 0; i < 8; ++i) Hear(Outcome::kNeed, 1, 0);
  EXPECT_TRUE(absl::IsInternal(Failure(Outcome::kNeed, 1, 0)));
}

TEST_F(ShardReplayTest, AProcessThatDoesNotSayWhatItLacksEndsTheTerm) {
  Make();
  FinishSteps(1);
  sender_->ShardReplaced(&effects_);
  const absl::Status failure = Failure(Outcome::kInvalid, 4, 0);
  EXPECT_TRUE(IsRollback(failure)) << failure;
  EXPECT_THAT(std::string(failure.message()), HasSubstr("does not say which steps it lacks"));
}

TEST_F(ShardReplayTest, AReplayResendsStepByStepAndThenContinues) {
  Make();
  FinishSteps(3);
  const Contribution second = kept_->Find(1, 2, 0)->exchange;
  EXPECT_EQ(Replace(/*from=*/2), News::kNone);
  ASSERT_TRUE(std::holds_alternative<ReplayBegun>(effects_.at(0)));
  EXPECT_EQ(std::get<ReplayBegun>(effects_[0]).from, 2u);
  EXPECT_EQ(std::get<ReplayBegun>(effects_[0]).to, 3u);
  EXPECT_EQ(SentBy(effects_).at(0), second);
  EXPECT_EQ(TakeSent(), "2/0 2/1 2/2");
  Start();
  Send(0);
  EXPECT_EQ(Hear(Outcome::kNeed, 1, 0, /*need_from=*/1), News::kNone) << "an outdated answer";
  EXPECT_EQ(TakeSent(), "") << "the new step waits";
  for (const uint32_t bundle : {2, 0}) EXPECT_EQ(Hear(Outcome::kResult, 2, bundle), News::kNone);
  EXPECT_EQ(sender_->bytes_in_flight(), kFrameBytes);
  EXPECT_EQ(Hear(Outcome::kResult, 2, 0), News::kNone) << "the answer is a repeat";
  EXPECT_EQ(TakeSent(), "");
  EXPECT_EQ(Hear(Outcome::kResult, 2, 1), News::kNone);
  EXPECT_EQ(TakeSent(), "3/0 3/1 3/2");
  for (const uint32_t bundle : {0, 1}) EXPECT_EQ(Hear(Outcome::kResult, 3, bundle), News::kNone);
  EXPECT_TRUE(sender_->is_replaying());
  EXPECT_EQ(Hear(Outcome::kResult, 3, 2), News::kReplayEnded);
  EXPECT_EQ(TakeSent(), "4/0");
}

TEST_F(ShardReplayTest, TheLeadDoesNotLimitAReplay) {
  Make(1 << 20, 1 << 20, /*bundles=*/5);
  FinishSteps(2);
  sender_->LimitLead(0.001);
  Start();
  SendAll();
  EXPECT_EQ(TakeSent(), "3/0 3/1 3/2 3/3");
  Replace(/*from=*/2);
  EXPECT_EQ(TakeSent(), "2/0 2/1 2/2 2/3 2/4");
  for (uint32_t bundle = 0; bundle < 5; ++bundle) Hear(Outcome::kResult, 2, bundle);
  EXPECT_EQ(TakeSent(), "3/0 3/1 3/2 3/3");
}

TEST_F(ShardReplayTest, AReplayOfTheOpenStepResendsWhatHadResults) {
  Make();
  Start();
  SendAll();
  Finish(1, 1);
  EXPECT_EQ(Replace(/*from=*/1), News::kNone);
  EXPECT_EQ(TakeSent(), "1/0 1/1 1/2");
  Finish(1, 0);
  EXPECT_TRUE(sender_->is_replaying());
  EXPECT_EQ(Hear(Outcome::kResult, 1, 1), News::kReplayEnded);
  EXPECT_FALSE(sender_->is_replaying());
  Finish(1, 2);
  EXPECT_EQ(sender_->bytes_in_flight(), 0u);
}

TEST_F(ShardReplayTest, AReplayOfEarlierStepsIncludesResultsOfTheOpenStep) {
  Make();
  FinishSteps(1);
  Start();
  SendAll();
  Finish(2, 0);
  Replace(/*from=*/1);
  EXPECT_EQ(TakeSent(), "1/0 1/1 1/2");
  for (const uint32_t bundle : {0, 1, 2}) Hear(Outcome::kResult, 1, bundle);
  EXPECT_EQ(TakeSent(), "2/0 2/1 2/2");
  EXPECT_EQ(Hear(Outcome::kResult, 2, 0), News::kReplayEnded);
}

TEST_F(ShardReplayTest, AProcessThatReplacesAnotherDuringAReplayIsAskedToo) {
  Make();
  FinishSteps(1);
  Start();
  Replace(/*from=*/1);
  EXPECT_EQ(TakeSent(), "1/0 1/1 1/2");
  EXPECT_EQ(Replace(/*from=*/2), News::kReplayEnded) << "nothing of step 2 was sent";
  EXPECT_THAT(effects_, IsEmpty());
}

TEST_F(ShardReplayTest, AReplayEndsAtOnceIfNoBundleOfTheOpenStepHasAResult) {
  Make();
  Start();
  SendAll();
  Hear(Outcome::kPending, 1, 1);
  EXPECT_EQ(Replace(/*from=*/1), News::kReplayEnded);
  EXPECT_EQ(TakeSent(), "1/0 1/1 1/2");
}

TEST_F(ShardReplayTest, ANewStreamDuringAReplayRepeatsItsStep) {
  Make(/*window_bytes=*/2 * kFrameBytes);
  FinishSteps(2);
  Replace(/*from=*/1);
  EXPECT_EQ(TakeSent(), "1/0 1/1");
  Hear(Outcome::kResult, 1, 0);
  EXPECT_EQ(TakeSent(), "1/2");
  sender_->StreamReset(&effects_);
  EXPECT_EQ(TakeSent(), "1/1 1/2");
}

TEST_F(ShardReplayTest, StepsThatAreNotKeptCauseARollback) {
  Make();
  FinishSteps(4);
  kept_->Release(2);
  sender_->ShardReplaced(&effects_);
  absl::Status failure = Failure(Outcome::kNeed, 7, 0, /*need_from=*/2);
  EXPECT_TRUE(IsRollback(failure)) << failure;
  EXPECT_THAT(std::string(failure.message()),
              AllOf(HasSubstr("asks for step 2"), HasSubstr("keeps contributions from step 3 on")));

  // During the replay, the buffer drops a step that the shard still lacks.
  Make();
  FinishSteps(3);
  Replace(/*from=*/1);
  kept_->Release(2);
  Hear(Outcome::kResult, 1, 0);
  Hear(Outcome::kResult, 1, 1);
  failure = Failure(Outcome::kResult, 1, 2);
  EXPECT_TRUE(IsRollback(failure)) << failure;
  EXPECT_THAT(std::string(failure.message()), HasSubstr("replays step 2, which rank 4 no longer"));
}

TEST_F(ShardReplayTest, AShardAheadOfThisWorkerCausesARollback) {
  Make();
  Start();
  Send(0);
  const absl::Status failure = Failure(Outcome::kNeed, 1, 0, /*need_from=*/2);
  EXPECT_TRUE(IsRollback(failure)) << failure;
  EXPECT_THAT(std::string(failure.message()), HasSubstr("past step 1, where rank 4 is"));
}

TEST_F(ShardReplayTest, ADifferentResultOfARepeatIsDataLoss) {
  Make();
  FinishSteps(1);
  Replace(/*from=*/1);
  protocol::ExchangeReply other = Reply(Outcome::kResult, 1, 0);
  other.record.result_checksum = 1;
  EXPECT_TRUE(absl::IsDataLoss(sender_->Answer(other, &effects_).status()));
  other = Reply(Outcome::kResult, 1, 0);
  other.results = {"other frames"};
  EXPECT_TRUE(absl::IsDataLoss(sender_->Answer(other, &effects_).status()));
  other = Reply(Outcome::kResult, 1, 0);
  other.plan = std::make_shared<protocol::CompressionPlan>();
  EXPECT_TRUE(absl::IsDataLoss(sender_->Answer(other, &effects_).status()));
}

// Only shard 0 makes plans, and only bundle 0 announces them.
TEST_F(ShardReplayTest, ShardZeroIsToldThePlansThatItHadAnnounced) {
  options_.exchange.control.policy = job::PolicyKind::kSchedule;
  const auto plan = std::make_shared<protocol::CompressionPlan>();
  for (const uint32_t shard : {0, 1}) {
    Make();
    sender_.emplace(shard, options_, &*kept_);
    Start();
    SendAll();
    for (const uint32_t bundle : {0, 1}) {
      protocol::ExchangeReply result = Reply(Outcome::kResult, 1, bundle);
      if (bundle == 0) result.plan = plan;
      ASSERT_TRUE(sender_->Answer(result, &effects_).ok());
      sender_->Resolve(result, &effects_);
    }
    Replace(/*from=*/1);
    const std::vector<Contribution> sent = SentBy(effects_);
    ASSERT_EQ(sent.size(), 3u);
    EXPECT_EQ(sent[0]->answered, shard == 0);
    EXPECT_EQ(sent[0]->announced, shard == 0 ? plan : nullptr);
    EXPECT_EQ(sent[0]->frames, ContributionOf(0)->frames);
    EXPECT_FALSE(sent[1]->answered);
    EXPECT_FALSE(sent[2]->answered);
  }
}

}  // namespace
}  // namespace sluice::worker
