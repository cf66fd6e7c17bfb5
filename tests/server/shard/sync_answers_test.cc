// SPDX-License-Identifier: Apache-2.0
#include "server/shard/sync_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr StreamId kStream = 3;

// The answers of a small shard with two ranks. Rank 1 got a new holder when step 6 was next.
struct AnswersUnderTest {
  explicit AnswersUnderTest(ShardOptions of = SmallShard(2)) : options(std::move(of)) {
    ranks.Replace(1, 6);
  }

  // Returns the only answer, and forgets all effects but the later ones.
  protocol::ExchangeReply Answer() {
    Check(!effects.empty() && std::holds_alternative<SendReply>(effects[0]),
          "an answer comes first");
    const SendReply reply = std::get<SendReply>(effects[0]);
    EXPECT_EQ(reply.stream, kStream);
    effects.erase(effects.begin());
    return *reply.answer;
  }

  const ShardOptions options;
  ShardLayout layout = *PlanShard(options);
  ShardStats stats;
  RequestFence fence{&options, &stats};
  RankTable ranks{&options, layout.bundles.size()};
  SyncAnswers answers{&options, &stats, &fence, &ranks, &layout.bundles};
  std::vector<ShardEffect> effects;
};

// An open bundle of two ranks.
struct OpenOfTwo {
  SumPool pool{100};
  OpenBundle bundle{{}, {}, 2, 0, &pool};
};

TEST(SyncAnswers, TheFirstContributionOnAStreamIsAnswered) {
  ShardOptions options = SmallShard(2);
  options.unanswered_bytes = 100;
  AnswersUnderTest shard(options);
  OpenOfTwo open;
  shard.answers.Admitted(kStream, SkipOf(0, 1, 0), 60, &open.bundle, &shard.effects);
  EXPECT_EQ(shard.Answer().outcome, protocol::Outcome::kPending);
  EXPECT_EQ(open.bundle.unanswered(0), 0u);
  shard.answers.Admitted(kStream, SkipOf(0, 1, 1), 60, &open.bundle, &shard.effects);
  EXPECT_THAT(shard.effects, IsEmpty());
  EXPECT_EQ(open.bundle.unanswered(0), 60u);
  shard.answers.Admitted(kStream, SkipOf(0, 2, 0), 60, &open.bundle, &shard.effects);
  EXPECT_EQ(shard.Answer().outcome, protocol::Outcome::kPending);
}

TEST(SyncAnswers, WhatMayBeResentOrWaitsForAParentIsAnswered) {
  for (const bool replays : {false, true}) {
    ShardOptions options = SmallShard(2);
    options.unanswered_bytes = 100;
    options.replay = replays;
    options.forwards_sums = !replays;
    AnswersUnderTest shard(options);
    OpenOfTwo open;
    for (int i = 0; i < 2; ++i) {
      shard.answers.Admitted(kStream, SkipOf(0, 1, 0), 1, &open.bundle, &shard.effects);
      EXPECT_EQ(shard.Answer().outcome, protocol::Outcome::kPending) << replays;
    }
  }
}

TEST(SyncAnswers, ARepeatIsCountedAndPending) {
  AnswersUnderTest shard;
  shard.answers.Repeat(kStream, SkipOf(0, 1, 0), &shard.effects);
  EXPECT_EQ(shard.Answer().outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.stats.repeats, 1u);
}

TEST(SyncAnswers, AsksForTheRequestOrFromTheOpenStepOfAReplay) {
  for (const bool replays : {false, true}) {
    ShardOptions options = SmallShard(2);
    options.replay = replays;
    AnswersUnderTest shard(options);
    shard.answers.Ask(kStream, SkipOf(0, 9, 0), 4, &shard.effects);
    const protocol::ExchangeReply answer = shard.Answer();
    EXPECT_EQ(answer.outcome, protocol::Outcome::kNeed);
    EXPECT_EQ(answer.need_from, replays ? 4u : 9u);
  }
}

TEST(SyncAnswers, ABusyShardDelaysTheRetryWithinItsBounds) {
  ShardOptions options = SmallShard(2);
  options.busy_retry_ms = 50;
  options.busy_retry_ms_max = 1000;
  AnswersUnderTest shard(options);
  const std::vector<std::pair<absl::Duration, uint32_t>> delays = {
      {absl::ZeroDuration(), 50}, {absl::Seconds(4), 500}, {absl::Minutes(1), 1000}};
  for (const auto& [waited, delay_ms] : delays) {
    shard.answers.Busy(kStream, SkipOf(0, 2, 1), waited, &shard.effects);
    const protocol::ExchangeReply answer = shard.Answer();
    EXPECT_EQ(answer.outcome, protocol::Outcome::kBusy);
    EXPECT_EQ(answer.step, 2u);
    EXPECT_EQ(answer.bundle, 1u);
    EXPECT_EQ(answer.retry_after_ms, delay_ms);
  }
  EXPECT_EQ(shard.stats.refused_busy, 3u);
}

TEST(SyncAnswers, CountsTheBytesOfResultsWithAMean) {
  AnswersUnderTest shard;
  protocol::ExchangeReply result;
  result.bundle = 1;
  result.results = {"frame", "x"};
  result.record.n = 2;
  result.open_step = 5;
  shard.answers.ResultAt(kStream, result, 7, &shard.effects);
  EXPECT_EQ(shard.Answer().open_step, 7u);
  EXPECT_EQ(shard.stats.bytes_out, 6u);
  EXPECT_EQ(shard.stats.dense_bytes_out, 4 * sizeof(float));
  result.results.clear();
  result.record.n = 0;
  shard.answers.Result(kStream, std::make_shared<protocol::ExchangeReply>(result), &shard.effects);
  EXPECT_EQ(shard.Answer().open_step, 5u);
  EXPECT_EQ(shard.stats.bytes_out, 6u);
  EXPECT_EQ(shard.stats.dense_bytes_out, 4 * sizeof(float));
}

TEST(SyncAnswers, OtherBytesOfTheSameHolderAreInvalid) {
  AnswersUnderTest shard;
  shard.answers.OtherBytes(kStream, SkipOf(0, 6, 0), 0xAB, 0xCD, &shard.effects);
  const protocol::ExchangeReply answer = shard.Answer();
  EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(answer.message, HasSubstr("checksum 000000ab, now 000000cd"));
  EXPECT_THAT(shard.effects, IsEmpty());
  EXPECT_EQ(shard.stats.not_reproducible, 0u);
}

TEST(SyncAnswers, OtherBytesThanThePredecessorsCannotBeReplayed) {
  AnswersUnderTest shard;
  shard.answers.OtherBytes(kStream, SkipOf(1, 6, 0), 0xAB, 0xCD, &shard.effects);
  EXPECT_EQ(shard.Answer().outcome, protocol::Outcome::kBusy);
  ASSERT_EQ(shard.effects.size(), 1u);
  const auto& lost = std::get<NotReproducible>(shard.effects[0]);
  EXPECT_EQ(lost.rank, 1u);
  EXPECT_EQ(lost.step, 6u);
  EXPECT_THAT(lost.text, HasSubstr("other bytes than its predecessor (checksum 000000ab"));
  EXPECT_EQ(shard.stats.not_reproducible, 1u);
}

TEST(SyncAnswers, AResultOfAnotherPlanCannotBeReplayed) {
  AnswersUnderTest shard;
  protocol::ExchangeRequest exchange = SkipOf(1, 6, 0);
  exchange.plan_id = 4;
  shard.answers.OtherPlan(kStream, exchange, 5, &shard.effects);
  EXPECT_EQ(shard.Answer().outcome, protocol::Outcome::kBusy);
  ASSERT_EQ(shard.effects.size(), 1u);
  EXPECT_THAT(std::get<NotReproducible>(shard.effects[0]).text,
              HasSubstr("coded by plan 4, and the result was by plan 5"));
}

TEST(SyncAnswers, AnAcknowledgedResultThatIsGoneIsInvalid) {
  AnswersUnderTest shard;
  shard.ranks.Acknowledge(1, 6);
  shard.answers.NoResult(kStream, SkipOf(1, 6, 0), {.open_step = 9, .kept_from = 8},
                         &shard.effects);
  const protocol::ExchangeReply answer = shard.Answer();
  EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(answer.message, HasSubstr("step 9 is open"));
  EXPECT_THAT(answer.message, Not(HasSubstr("kept from step")));
  EXPECT_THAT(shard.effects, IsEmpty());
  EXPECT_EQ(shard.stats.refused_invalid, 1u);
  // It does not count towards the limit of invalid requests.
  for (uint32_t i = 0; i < shard.options.invalid_limit; ++i) {
    shard.answers.NoResult(kStream, SkipOf(1, 6, 0), {.open_step = 9, .kept_from = 8},
                           &shard.effects);
    EXPECT_EQ(shard.Answer().outcome, protocol::Outcome::kInvalid);
  }
}

TEST(SyncAnswers, ANewHolderThatNeedsALostResultCannotReplay) {
  AnswersUnderTest shard;
  shard.answers.NoResult(kStream, SkipOf(1, 6, 0), {.open_step = 9, .kept_from = 8},
                         &shard.effects);
  EXPECT_EQ(shard.Answer().outcome, protocol::Outcome::kBusy);
  ASSERT_EQ(shard.effects.size(), 1u);
  EXPECT_THAT(std::get<NotReproducible>(shard.effects[0]).text,
              HasSubstr("results are kept from step 8 on; raise checkpoint.replay_limit"));
}

TEST(SyncAnswers, ANewcomerThatNeedsALostResultIsShutOut) {
  AnswersUnderTest shard;
  shard.answers.NoResult(kStream, SkipOf(1, 6, 0),
                         {.open_step = 9, .kept_from = 8, .is_member = false}, &shard.effects);
  const protocol::ExchangeReply answer = shard.Answer();
  EXPECT_EQ(answer.outcome, protocol::Outcome::kFenced);
  EXPECT_THAT(answer.message, HasSubstr("too far behind to catch up"));
  EXPECT_THAT(shard.fence.FenceReason(SkipOf(1, 7, 0).sender), HasSubstr("too far behind"));
  EXPECT_EQ(shard.fence.FenceReason(SkipOf(0, 7, 0).sender), "");
}

TEST(SyncAnswers, ANewcomerThatRepeatsAnAcknowledgedStepStays) {
  AnswersUnderTest shard;
  shard.ranks.Acknowledge(1, 6);
  shard.answers.NoResult(kStream, SkipOf(1, 6, 0),
                         {.open_step = 9, .kept_from = 8, .is_member = false}, &shard.effects);
  EXPECT_EQ(shard.Answer().outcome, protocol::Outcome::kInvalid);
  EXPECT_EQ(shard.fence.FenceReason(SkipOf(1, 7, 0).sender), "");
}

TEST(SyncAnswers, AReplayingShardAsksAboutStepsBeforeIt) {
  ShardOptions options = SmallShard(2);
  options.replay = true;
  options.first_step = 8;
  AnswersUnderTest shard(options);
  shard.answers.NoResult(kStream, SkipOf(0, 7, 0), {.open_step = 9, .kept_from = 8},
                         &shard.effects);
  const protocol::ExchangeReply answer = shard.Answer();
  EXPECT_EQ(answer.outcome, protocol::Outcome::kNeed);
  EXPECT_EQ(answer.need_from, 9u);
  shard.answers.NoResult(kStream, SkipOf(0, 8, 0), {.open_step = 9, .kept_from = 8},
                         &shard.effects);
  EXPECT_EQ(shard.Answer().outcome, protocol::Outcome::kInvalid);
}

TEST(SyncAnswers, ANewcomerThatWorksTooEarlyIsShutOutAtTheLimit) {
  AnswersUnderTest shard;
  for (uint32_t i = 1; i <= shard.options.invalid_limit; ++i) {
    shard.answers.NotAwaited(kStream, Contribution(1, 6, 0, 1), &shard.effects);
    const protocol::ExchangeReply answer = shard.Answer();
    EXPECT_THAT(answer.message, HasSubstr("it has to skip for now"));
    EXPECT_EQ(answer.outcome, i < shard.options.invalid_limit ? protocol::Outcome::kInvalid
                                                              : protocol::Outcome::kFenced);
  }
}

}  // namespace
}  // namespace sluice::server
