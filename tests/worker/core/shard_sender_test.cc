// Tests which requests a ShardSender sends and when, and what it makes of each answer. The test
// plays the shard, and composes the contributions as a Pipeline would.
#include "worker/core/shard_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "protocol/compression_plan.h"
#include "tests/worker/core/one_worker.h"
#include "worker/core/session.h"

namespace sluice::worker {
namespace {

using protocol::Outcome;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using News = ShardSender::News;
using Contribution = std::shared_ptr<const protocol::ExchangeRequest>;

constexpr uint64_t kFrameBytes = 10;  // Each contribution has one frame of this size.

// Shards 0 and 1 have three bundles each.
class ShardSenderTest : public testing::Test {
 protected:
  void Make(uint64_t window_bytes = 1 << 20, uint64_t replay_bytes = 1 << 20) {
    options_.sender = {.job_uid = 7, .rank = 4, .incarnation = 3};
    options_.layout.bundles = {{{}, {}, {}}, {{}, {}, {}}};
    options_.window_bytes = window_bytes;
    options_.replay_bytes = replay_bytes;
    kept_.emplace(2, replay_bytes, 1);
    sender_.emplace(1, options_, &*kept_);
    effects_.clear();
    step_ = 0;
  }
  Contribution ContributionOf(uint32_t bundle) const {
    auto exchange = std::make_shared<protocol::ExchangeRequest>();
    exchange->sender = options_.sender;
    exchange->step = step_;
    exchange->bundle = bundle;
    exchange->frames = {std::string(kFrameBytes, 'x')};
    return exchange;
  }
  void Start() { sender_->StartStep(++step_); }
  void Send(uint32_t bundle) { sender_->Send(ContributionOf(bundle), &effects_); }
  void SendAll() {
    for (uint32_t bundle = 0; bundle < 3; ++bundle) Send(bundle);
  }
  void FinishSteps(int steps) {
    for (int i = 0; i < steps; ++i) {
      Start();
      SendAll();
      for (const uint32_t bundle : {0, 1, 2}) Finish(step_, bundle);
    }
    effects_.clear();
  }

  static protocol::ExchangeReply Reply(Outcome outcome, uint64_t step, uint32_t bundle,
                                       uint64_t need_from = 0) {
    protocol::ExchangeReply reply;
    reply.outcome = outcome;
    reply.step = step;
    reply.bundle = bundle;
    reply.need_from = need_from;
    reply.retry_after_ms = 30;
    reply.message = "as the shard says";
    return reply;
  }
  // Passes an answer that must not fail.
  News Hear(Outcome outcome, uint64_t step, uint32_t bundle, uint64_t need_from = 0) {
    const absl::StatusOr<News> news =
        sender_->Answer(Reply(outcome, step, bundle, need_from), &effects_);
    EXPECT_TRUE(news.ok()) << news.status();
    return news.value_or(News::kNone);
  }
  // Passes an answer that must fail.
  absl::Status Failure(Outcome outcome, uint64_t step, uint32_t bundle, uint64_t need_from = 0) {
    return sender_->Answer(Reply(outcome, step, bundle, need_from), &effects_).status();
  }
  void Finish(uint64_t step, uint32_t bundle) {
    ASSERT_EQ(Hear(Outcome::kResult, step, bundle), News::kResult);
    sender_->Resolve(Reply(Outcome::kResult, step, bundle), &effects_);
  }
  // The new process lacks the steps from `from` on.
  News Replace(uint64_t from) {
    sender_->ShardReplaced(&effects_);
    effects_.clear();
    return Hear(Outcome::kNeed, step_ + 3, 0, from);
  }

  // Formats the requests since the last call as "2/0" (step, bundle); "2/0?" has only keys.
  std::string TakeSent() {
    std::vector<std::string> names;
    for (const Contribution& sent : SentBy(effects_)) {
      names.push_back(absl::StrCat(sent->step, "/", sent->bundle, sent->keys_only ? "?" : ""));
    }
    effects_.clear();
    return absl::StrJoin(names, " ");
  }
  std::vector<absl::Duration> Pauses() const {
    std::vector<absl::Duration> delays;
    for (const PipelineEffect& effect : effects_) {
      if (const auto* later = std::get_if<RetryLater>(&effect)) delays.push_back(later->delay);
    }
    return delays;
  }

  PipelineOptions options_;
  std::optional<ReplayBuffer> kept_;
  std::optional<ShardSender> sender_;  // It serves shard 1.
  uint64_t step_ = 0;
  PipelineEffects effects_;
};

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

TEST_F(ShardSenderTest, ANewProcessIsAskedBeforeAnythingIsSent) {
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
}

TEST_F(ShardSenderTest, AProcessThatDoesNotSayWhatItLacksEndsTheTerm) {
  Make();
  FinishSteps(1);
  sender_->ShardReplaced(&effects_);
  const absl::Status failure = Failure(Outcome::kInvalid, 4, 0);
  EXPECT_TRUE(IsRollback(failure)) << failure;
  EXPECT_THAT(std::string(failure.message()), HasSubstr("does not say which steps it lacks"));
}

TEST_F(ShardSenderTest, AReplayResendsStepByStepAndThenContinues) {
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

TEST_F(ShardSenderTest, AReplayOfTheOpenStepResendsWhatHadResults) {
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

TEST_F(ShardSenderTest, AReplayEndsAtOnceIfNoBundleOfTheOpenStepHasAResult) {
  Make();
  Start();
  SendAll();
  EXPECT_EQ(Replace(/*from=*/1), News::kReplayEnded);
  EXPECT_EQ(TakeSent(), "1/0 1/1 1/2");
}

TEST_F(ShardSenderTest, ANewStreamDuringAReplayRepeatsItsStep) {
  Make(/*window_bytes=*/2 * kFrameBytes);
  FinishSteps(2);
  Replace(/*from=*/1);
  EXPECT_EQ(TakeSent(), "1/0 1/1");
  Hear(Outcome::kResult, 1, 0);
  EXPECT_EQ(TakeSent(), "1/2");
  sender_->StreamReset(&effects_);
  EXPECT_EQ(TakeSent(), "1/1 1/2");
}

TEST_F(ShardSenderTest, StepsThatAreNotKeptCauseARollback) {
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

TEST_F(ShardSenderTest, AShardAheadOfThisWorkerCausesARollback) {
  Make();
  Start();
  Send(0);
  const absl::Status failure = Failure(Outcome::kNeed, 1, 0, /*need_from=*/2);
  EXPECT_TRUE(IsRollback(failure)) << failure;
  EXPECT_THAT(std::string(failure.message()), HasSubstr("past step 1, where rank 4 is"));
}

TEST_F(ShardSenderTest, ADifferentResultOfARepeatIsDataLoss) {
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
TEST_F(ShardSenderTest, ShardZeroIsToldThePlansThatItHadAnnounced) {
  options_.makes_plans = true;
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
