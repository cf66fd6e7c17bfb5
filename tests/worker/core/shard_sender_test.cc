// SPDX-License-Identifier: Apache-2.0
// Tests which requests a ShardSender sends and when, and what it makes of each answer.
#include "worker/core/shard_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/core/shard_sender_fixture.h"

namespace sluice::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(ShardSenderTest, SendsABundleAfterAllEarlierOnes) {
  Make();
  Start();
  Send(1);
  EXPECT_EQ(TakeSent(), "");
  Send(0);
  EXPECT_EQ(TakeSent(), "1/0 1/1");
  Send(2);
  EXPECT_EQ(std::get<SendExchange>(effects_.at(0)).shard, 1u);
  EXPECT_EQ(TakeSent(), "1/2");
}

TEST_F(ShardSenderTest, TheWindowLimitsWhatIsNotAdmitted) {
  Make(/*window_bytes=*/2 * kFrameBytes);
  Start();
  SendAll();
  EXPECT_EQ(TakeSent(), "1/0 1/1");
  EXPECT_EQ(sender_->bytes_in_flight(), 2 * kFrameBytes);
  Hear(Outcome::kPending, 1, 1);
  EXPECT_EQ(TakeSent(), "1/2");
  // Neither a repeated answer nor the result returns the credit again.
  Hear(Outcome::kPending, 1, 1);
  Finish(1, 1);
  EXPECT_EQ(sender_->bytes_in_flight(), 2 * kFrameBytes);
  Finish(1, 0);
  Finish(1, 2);
  EXPECT_EQ(sender_->bytes_in_flight(), 0u);
}

TEST_F(ShardSenderTest, OneBundleMayExceedTheWindow) {
  Make(/*window_bytes=*/1);
  Start();
  SendAll();
  EXPECT_EQ(TakeSent(), "1/0");
  Finish(1, 0);
  EXPECT_EQ(TakeSent(), "1/1");
}

TEST_F(ShardSenderTest, TheLeadLimitsWhatHasNoResult) {
  Make(1 << 20, 1 << 20, /*bundles=*/10);
  sender_->LimitLead(0.6);
  Start();
  SendAll();
  EXPECT_EQ(SentBy(effects_).size(), 10u) << "the size of a step is not known before the first one";
  FinishAll();
  effects_.clear();
  Start();
  SendAll();
  EXPECT_EQ(TakeSent(), "2/0 2/1 2/2 2/3 2/4 2/5");
  Hear(Outcome::kPending, 2, 0);
  EXPECT_EQ(TakeSent(), "") << "an admitted bundle has no result yet";
  Finish(2, 0);
  EXPECT_EQ(TakeSent(), "2/6");
  for (uint32_t bundle = 1; bundle < 10; ++bundle) Finish(2, bundle);
  EXPECT_EQ(TakeSent(), "2/7 2/8 2/9");

  sender_->LimitLead(0);
  Start();
  SendAll();
  EXPECT_EQ(SentBy(effects_).size(), 10u);
}

TEST_F(ShardSenderTest, FourBundlesMayAlwaysBeOnTheirWay) {
  Make(1 << 20, 1 << 20, /*bundles=*/6);
  FinishSteps(1);
  sender_->LimitLead(0.001);
  Start();
  SendAll();
  EXPECT_EQ(TakeSent(), "2/0 2/1 2/2 2/3");
  sender_->StreamReset(&effects_);
  EXPECT_EQ(TakeSent(), "2/0 2/1 2/2 2/3") << "the lead holds on a new stream too";
  Finish(2, 1);
  EXPECT_EQ(TakeSent(), "2/4");
}

TEST_F(ShardSenderTest, ASmallerBundleCountsAsABundleOfTheLead) {
  Make(1 << 20, 1 << 20, /*bundles=*/4);
  FinishSteps(1);
  sender_->LimitLead(0.001);
  Start();
  for (uint32_t bundle = 0; bundle < 3; ++bundle) Send(bundle);
  auto smaller = std::make_shared<protocol::ExchangeRequest>(*ContributionOf(3));
  smaller->frames = {"x"};
  sender_->Send(smaller, &effects_);
  EXPECT_EQ(TakeSent(), "2/0 2/1 2/2 2/3");
}

TEST_F(ShardSenderTest, OnlyTheFirstResultOfABundleIsNews) {
  Make();
  Start();
  Send(0);
  EXPECT_EQ(sender_->checksum(0), protocol::BundleChecksum(*ContributionOf(0)));
  EXPECT_EQ(Hear(Outcome::kResult, 1, 1), News::kNone) << "it was not sent";
  Finish(1, 0);
  EXPECT_EQ(Hear(Outcome::kResult, 1, 0), News::kNone);
  EXPECT_EQ(Hear(Outcome::kResult, 9, 0), News::kNone) << "an earlier holder's work";
  EXPECT_EQ(Hear(Outcome::kPending, 1, 0), News::kNone);
  Start();
  EXPECT_EQ(Hear(Outcome::kResult, 1, 0), News::kNone) << "the step is over";
}

TEST_F(ShardSenderTest, BusyPausesUntilTheRetryIsDue) {
  Make();
  Start();
  SendAll();
  effects_.clear();
  Hear(Outcome::kBusy, 1, 1);
  Hear(Outcome::kBusy, 1, 0);
  EXPECT_THAT(Pauses(), ElementsAre(absl::Milliseconds(30)));
  EXPECT_EQ(sender_->bytes_in_flight(), kFrameBytes);
  Finish(1, 2);
  EXPECT_EQ(TakeSent(), "");
  sender_->RetryDue(&effects_);
  EXPECT_EQ(TakeSent(), "1/0 1/1");
  protocol::ExchangeReply at_once = Reply(Outcome::kBusy, 1, 0);
  at_once.retry_after_ms = 0;
  ASSERT_TRUE(sender_->Answer(at_once, &effects_).ok());
  EXPECT_THAT(Pauses(), ElementsAre(absl::Milliseconds(1)));
}

TEST_F(ShardSenderTest, NeedOfABundleResendsTheSameBytesEightTimes) {
  Make();
  Start();
  const Contribution contribution = ContributionOf(0);
  sender_->Send(contribution, &effects_);
  for (int i = 0; i < 8; ++i) {
    effects_.clear();
    EXPECT_EQ(Hear(Outcome::kNeed, 1, 0), News::kNone);
    EXPECT_THAT(SentBy(effects_), ElementsAre(contribution));
  }
  EXPECT_EQ(sender_->bytes_in_flight(), kFrameBytes);
  const absl::Status failure = Failure(Outcome::kNeed, 1, 0);
  EXPECT_TRUE(absl::IsInternal(failure)) << failure;
  EXPECT_THAT(std::string(failure.message()), HasSubstr("asked 9 times for bundle 0 of shard 1"));
}

TEST_F(ShardSenderTest, ARefusalFails) {
  Make();
  Start();
  Send(0);
  const absl::Status failure = Failure(Outcome::kInvalid, 1, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(failure)) << failure;
  EXPECT_THAT(std::string(failure.message()),
              AllOf(HasSubstr("shard 1 refused bundle 0 of shard 1 at step 1 from rank 4"),
                    HasSubstr("as the shard says")));
}

TEST_F(ShardSenderTest, ABundleThatWaitsToBeResentIgnoresOldAnswers) {
  Make();
  Start();
  Send(0);
  Hear(Outcome::kBusy, 1, 0);
  EXPECT_EQ(Hear(Outcome::kInvalid, 1, 0), News::kNone);
  EXPECT_EQ(Hear(Outcome::kPending, 1, 0), News::kNone);
  effects_.clear();
  sender_->RetryDue(&effects_);
  EXPECT_EQ(TakeSent(), "1/0");
}

TEST_F(ShardSenderTest, AnAnswerToWhatWasNotSentFails) {
  Make();
  Start();
  Send(0);
  const std::vector<std::pair<uint64_t, uint32_t>> not_sent = {{1, 1}, {2, 0}, {1, 3}};
  for (const auto& [step, bundle] : not_sent) {
    const absl::Status failure = Failure(Outcome::kPending, step, bundle);
    EXPECT_TRUE(absl::IsInternal(failure)) << failure;
    EXPECT_THAT(std::string(failure.message()), HasSubstr("which rank 4 has not sent"));
  }
}

TEST_F(ShardSenderTest, ANewStreamCarriesAllThatHasNoResult) {
  Make(/*window_bytes=*/2 * kFrameBytes);
  Start();
  SendAll();
  Hear(Outcome::kPending, 1, 1);
  Finish(1, 0);
  effects_.clear();
  sender_->StreamReset(&effects_);
  EXPECT_EQ(TakeSent(), "1/1 1/2");
  EXPECT_EQ(sender_->bytes_in_flight(), 2 * kFrameBytes);
}

TEST_F(ShardSenderTest, AnIdleSenderAsksOnANewStreamAboutItsLastBundle) {
  Make();
  FinishSteps(2);
  sender_->StreamReset(&effects_);
  EXPECT_EQ(TakeSent(), "2/2?");
  Start();
  Hear(Outcome::kBusy, 2, 2);
  EXPECT_THAT(Pauses(), ElementsAre(absl::Milliseconds(30)));
  effects_.clear();
  sender_->RetryDue(&effects_);
  EXPECT_EQ(TakeSent(), "2/2?");
  // Work in flight will show which process serves the shard.
  Send(0);
  effects_.clear();
  Hear(Outcome::kBusy, 2, 2);
  EXPECT_THAT(effects_, IsEmpty());

  Make(1 << 20, /*replay_bytes=*/0);
  FinishSteps(2);
  sender_->StreamReset(&effects_);
  Hear(Outcome::kBusy, 2, 2);
  Hear(Outcome::kNeed, 2, 2);
  EXPECT_THAT(effects_, IsEmpty()) << "nothing is kept, so no answer would help";
}

TEST_F(ShardSenderTest, BeforeTheFirstStepThereIsNothingToSend) {
  Make();
  sender_->StreamReset(&effects_);
  sender_->RetryDue(&effects_);
  sender_->ShardReplaced(&effects_);
  EXPECT_EQ(Hear(Outcome::kPending, 0, 0), News::kNone);
  EXPECT_THAT(effects_, IsEmpty());
  EXPECT_FALSE(sender_->is_replaying());
}

}  // namespace
}  // namespace sluice::worker
