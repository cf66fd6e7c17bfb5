// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/crc32c.h"
#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Returns a frame of codec none with one NaN element and a correct checksum.
std::string NanFrame() {
  std::string frame = EncodedFrame({1.0f});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(frame.data() + compress::kFrameHeaderSize, &nan, sizeof(nan));
  const absl::Span<const std::byte> bytes = protocol::FrameBytes(frame);
  const uint32_t crc =
      ExtendCrc32c(Crc32c(bytes.first(compress::kFrameHeaderSize - sizeof(uint32_t))),
                   bytes.subspan(compress::kFrameHeaderSize));
  std::memcpy(frame.data() + compress::kFrameHeaderSize - sizeof(crc), &crc, sizeof(crc));
  return frame;
}

TEST(Shard, AnswersPendingUntilTheLastRankThenTheMeanToAll) {
  ShardUnderTest shard(SmallShard(3));
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 3)).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(Contribution(2, 1, 0, 9)).outcome, protocol::Outcome::kPending);
  const auto effects = shard.Send(Contribution(1, 1, 0, 6));
  ASSERT_EQ(effects.size(), 3u);
  const SendReply& first = std::get<SendReply>(effects[0]);
  for (size_t rank = 0; rank < 3; ++rank) {
    const SendReply& reply = std::get<SendReply>(effects[rank]);
    EXPECT_EQ(reply.stream, rank + 1);
    EXPECT_EQ(reply.answer, first.answer) << "all ranks must share one encoded result";
  }
  EXPECT_EQ(first.answer->outcome, protocol::Outcome::kResult);
  EXPECT_THAT(DecodedFrame(first.answer->results.at(0), 2), ElementsAre(6, 6));
  const protocol::ClosingRecord& record = first.answer->record;
  EXPECT_EQ(record.n, 3u);
  EXPECT_EQ(record.step, 1u);
  EXPECT_EQ(record.generation, 1u);
  ASSERT_EQ(record.included.size(), 3u);
  EXPECT_EQ(record.included[1].checksum, protocol::BundleChecksum(Contribution(1, 1, 0, 6).frames));
  EXPECT_EQ(record.result_checksum, protocol::BundleChecksum(first.answer->results));
  EXPECT_EQ(first.answer->base_version, 0u);
  EXPECT_EQ(first.answer->version, 1u);
}

TEST(Shard, SumsInRankOrderWhateverTheArrivalOrder) {
  // The values show the order of the additions: in fp32, 1e8 + 1 - 1e8 is 0, but 1e8 - 1e8 + 1 is
  // 1.
  const float values[] = {1e8f, 1.0f, -1e8f};
  std::vector<std::string> results;
  for (const std::vector<uint32_t>& order :
       {std::vector<uint32_t>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}}) {
    ShardUnderTest shard(SmallShard(3));
    std::vector<ShardEffect> last;
    for (const uint32_t rank : order) last = shard.Send(Contribution(rank, 1, 0, values[rank]));
    results.push_back(std::get<SendReply>(last.at(0)).answer->results.at(0));
  }
  for (const std::string& result : results) {
    EXPECT_EQ(result, results[0]);
    EXPECT_THAT(DecodedFrame(result, 2), ElementsAre(0, 0));
  }
}

// A PENDING costs as much to send as a RESULT. Within the limit of unanswered bytes, a shard must
// send only the RESULT.
TEST(Shard, AnswersOnlyTheFirstOfAStreamAndWhatIsOverTheLimit) {
  const size_t small = Contribution(0, 1, 0, 1).frames[0].size();
  ShardOptions options = SmallShard(2);
  options.unanswered_bytes = small;
  ShardUnderTest shard(options);
  for (uint64_t step = 1; step <= 4; ++step) {
    const std::vector<ShardEffect> first = shard.Send(Contribution(0, step, 0, 3));
    EXPECT_THAT(first, SizeIs(step == 1 ? 1 : 0)) << step;
    EXPECT_EQ(shard.Ask(Contribution(0, step, 1, 3)).outcome, protocol::Outcome::kPending)
        << "the contribution exceeds the limit";
    EXPECT_EQ(shard.Ask(KeysOf(Contribution(0, step, 0, 3))).outcome, protocol::Outcome::kPending);
    // When a bundle closes, its bytes become available for the next contribution.
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      const std::vector<ShardEffect> closed = shard.Send(Contribution(1, step, bundle, 4));
      ASSERT_THAT(closed, SizeIs(2)) << step;
      EXPECT_EQ(std::get<SendReply>(closed[0]).answer->outcome, protocol::Outcome::kResult);
    }
  }
  // On a new stream, the sender does not know yet which process answers, so it must get an answer.
  shard->StreamClosed(1);
  EXPECT_THAT(shard.SendOn(9, Contribution(0, 5, 0, 3)), SizeIs(1));
}

TEST(Shard, AnswersEverythingUnlessToldOtherwise) {
  ShardUnderTest shard(SmallShard(2));
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    EXPECT_EQ(shard.Ask(SkipOf(0, 1, bundle)).outcome, protocol::Outcome::kPending);
  }
}

TEST(Shard, AnswersAllThatMayHaveToBeSentAgain) {
  ShardOptions options = SmallShard(2);
  options.unanswered_bytes = 1 << 20;
  options.replay = true;
  options.parameters_agree = true;
  ShardUnderTest shard(options);
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 2)).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 1, 2)).outcome, protocol::Outcome::kPending);
}

TEST(Shard, RetryAfterALostReplyGetsTheSameResultAndCountsOnce) {
  ShardUnderTest shard(SmallShard(2));
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 2)).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 2)).outcome, protocol::Outcome::kPending);
  shard.Send(Contribution(1, 1, 0, 4));
  const protocol::ExchangeReply again = shard.Ask(Contribution(0, 1, 0, 2));
  EXPECT_EQ(again.outcome, protocol::Outcome::kResult);
  EXPECT_EQ(again.record.n, 2u);
  EXPECT_THAT(DecodedFrame(again.results.at(0), 2), ElementsAre(3, 3));
  EXPECT_EQ(shard->Stats().repeats, 2u);
  EXPECT_EQ(shard->Stats().contributions, 2u);
}

TEST(Shard, TwoFramesOneKeyIsInvalidBeforeAndAfterTheClose) {
  ShardUnderTest shard(SmallShard(2));
  shard.Send(Contribution(0, 1, 0, 2));
  const protocol::ExchangeReply open = shard.Ask(Contribution(0, 1, 0, 3));
  EXPECT_EQ(open.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(open.message, HasSubstr("rank 0, step 1, bundle 0"));
  const auto effects = shard.Send(Contribution(1, 1, 0, 4));
  EXPECT_THAT(DecodedFrame(std::get<SendReply>(effects[0]).answer->results.at(0), 2),
              ElementsAre(3, 3));
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 3)).outcome, protocol::Outcome::kInvalid);
  EXPECT_EQ(shard.Ask(SkipOf(0, 1, 0)).outcome, protocol::Outcome::kFenced)
      << "this is the third invalid request in a row";
}

TEST(Shard, KeysOnlyAsksWithoutPayload) {
  ShardUnderTest shard(SmallShard(2));
  const protocol::ExchangeReply need = shard.Ask(KeysOf(Contribution(0, 1, 1, 2)));
  EXPECT_EQ(need.outcome, protocol::Outcome::kNeed);
  EXPECT_EQ(need.need_from, 1u);
  shard.Send(Contribution(0, 1, 1, 2));
  EXPECT_EQ(shard.Ask(KeysOf(Contribution(0, 1, 1, 2))).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(KeysOf(Contribution(0, 1, 1, 5))).outcome, protocol::Outcome::kInvalid);
  shard.Send(Contribution(1, 1, 1, 4));
  EXPECT_EQ(shard.Ask(KeysOf(Contribution(0, 1, 1, 2))).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard.Ask(KeysOf(SkipOf(0, 1, 1))).outcome, protocol::Outcome::kResult)
      << "the request contains no checksums";
}

TEST(Shard, FencesOtherJobsTermsHoldersAndNewerServers) {
  ShardUnderTest shard(SmallShard(2));
  const auto refused = [&](auto change) {
    protocol::ExchangeRequest exchange = Contribution(0, 1, 0, 1);
    change(&exchange.sender);
    const protocol::ExchangeReply answer = shard.Ask(std::move(exchange));
    EXPECT_EQ(answer.outcome, protocol::Outcome::kFenced);
    return answer.message;
  };
  EXPECT_THAT(refused([](protocol::Sender* s) { s->job_uid = 1; }), HasSubstr("earlier run"));
  EXPECT_THAT(refused([](protocol::Sender* s) { s->incarnation = 9; }),
              HasSubstr("rank 0 is held"));
  EXPECT_THAT(refused([](protocol::Sender* s) { s->rank = 7; }),
              HasSubstr("rank 7 does not exist"));
  EXPECT_THAT(refused([](protocol::Sender* s) { s->server_incarnation = 6; }), HasSubstr("newer"));
  EXPECT_EQ(shard->Stats().contributions, 0u);
  EXPECT_EQ(shard->Stats().refused_fenced, 4u);
}

// A worker may reach a shard that does not know the new term yet. It must get BUSY and try again.
TEST(Shard, ASenderOfALaterTermIsToTryAgain) {
  ShardUnderTest shard(SmallShard(2));
  protocol::ExchangeRequest ahead = Contribution(0, 1, 0, 1);
  ahead.sender.term = 3;
  EXPECT_EQ(shard.Ask(ahead).outcome, protocol::Outcome::kBusy);
  (void)shard->Suspend(3, "rolled back");
  EXPECT_EQ(shard.Ask(ahead).outcome, protocol::Outcome::kBusy) << "the shard waits for its start";
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 1)).outcome, protocol::Outcome::kFenced);
  EXPECT_EQ(shard->Stats().contributions, 0u);
}

TEST(Shard, AnEndedShardFencesEveryTerm) {
  ShardUnderTest shard(SmallShard(2));
  (void)shard->End("the job has failed");
  protocol::ExchangeRequest ahead = Contribution(0, 1, 0, 1);
  ahead.sender.term = 3;
  EXPECT_EQ(shard.Ask(ahead).outcome, protocol::Outcome::kFenced);
}

TEST(Shard, RetryAcrossAGenerationChangeIsStillARepeat) {
  ShardUnderTest shard(SmallShard(2));
  shard.Send(Contribution(0, 1, 0, 2));
  ASSERT_TRUE(shard->SetMembership(2, {100, 201}).ok());
  protocol::ExchangeRequest again = Contribution(0, 1, 0, 2);
  again.sender.generation = 2;
  EXPECT_EQ(shard.Ask(again).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(Contribution(1, 1, 0, 4)).outcome, protocol::Outcome::kFenced)
      << "the rank's holder changed";
  protocol::ExchangeRequest heir = Contribution(1, 1, 0, 4);
  heir.sender.incarnation = 201;
  const protocol::ExchangeReply result = shard.Ask(heir);
  EXPECT_EQ(result.record.n, 2u);
  EXPECT_EQ(result.record.generation, 2u);
  EXPECT_FALSE(shard->SetMembership(1, {100, 201}).ok());
  EXPECT_FALSE(shard->SetMembership(3, {100}).ok());
}

TEST(Shard, ARankThatSendsNanIsNamedAndFencedAtTheThirdTime) {
  ShardUnderTest shard(SmallShard(2));
  protocol::ExchangeRequest bad = Contribution(1, 1, 1, 1);
  bad.frames[1] = NanFrame();
  for (int i = 0; i < 2; ++i) {
    const protocol::ExchangeReply answer = shard.Ask(bad);
    EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid);
    EXPECT_THAT(answer.message,
                AllOf(HasSubstr("rank 1, step 1"), HasSubstr("chunk 1 (early, elements 3")));
    EXPECT_THAT(answer.message, HasSubstr("finite"));
  }
  const auto effects = shard.Send(bad);
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(std::get<SendReply>(effects[0]).answer->outcome, protocol::Outcome::kFenced);
  EXPECT_THAT(std::get<Alarm>(effects[1]).text, HasSubstr("early"));
  EXPECT_EQ(shard.Ask(Contribution(1, 1, 1, 1)).outcome, protocol::Outcome::kFenced)
      << "the fence is permanent";
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 1, 1)).outcome, protocol::Outcome::kPending)
      << "other ranks continue";
}

TEST(Shard, AGoodContributionForgivesEarlierBadOnes) {
  ShardUnderTest shard(SmallShard(2));
  for (uint64_t step = 1; step <= 4; ++step) {
    protocol::ExchangeRequest bad = Contribution(0, step, 0, 1);
    bad.frames[0].back() ^= 1;
    EXPECT_EQ(shard.Ask(bad).outcome, protocol::Outcome::kInvalid);
    shard.RunStep(step, 1);
  }
  EXPECT_EQ(shard->open_step(), 5u);
}

TEST(Shard, AWholeBundleIsAdmittedOrNone) {
  ShardUnderTest shard(SmallShard(2));
  protocol::ExchangeRequest half = Contribution(0, 1, 1, 2);
  half.frames[1] = EncodedFrame({1, 2});  // The number of bytes is right, but the chunk is wrong.
  EXPECT_EQ(shard.Ask(half).outcome, protocol::Outcome::kInvalid);
  half.frames.pop_back();
  EXPECT_EQ(shard.Ask(half).outcome, protocol::Outcome::kInvalid);
  EXPECT_EQ(shard->Stats().held_bytes, 0u);
  shard.Send(Contribution(0, 1, 1, 2));
  const protocol::ExchangeReply result = shard.Ask(Contribution(1, 1, 1, 4));
  EXPECT_THAT(DecodedFrame(result.results.at(0), 3), ElementsAre(3, 3, 3));
  EXPECT_THAT(DecodedFrame(result.results.at(1), 1), ElementsAre(3));
}

TEST(Shard, SkipsArriveButAreNotInTheMean) {
  ShardUnderTest shard(SmallShard(3));
  shard.Send(SkipOf(0, 1, 0));
  shard.Send(Contribution(1, 1, 0, 4));
  const protocol::ExchangeReply result = shard.Ask(Contribution(2, 1, 0, 8));
  EXPECT_EQ(result.record.n, 2u);
  EXPECT_TRUE(result.record.included[0].skipped);
  EXPECT_THAT(DecodedFrame(result.results.at(0), 2), ElementsAre(6, 6));
}

TEST(Shard, ABundleThatAllSkipClosesEmptyAndKeepsItsVersion) {
  ShardUnderTest shard(SmallShard(2));
  shard.Send(SkipOf(0, 1, 0));
  const protocol::ExchangeReply result = shard.Ask(SkipOf(1, 1, 0));
  EXPECT_EQ(result.outcome, protocol::Outcome::kResult);
  EXPECT_EQ(result.record.n, 0u);
  EXPECT_TRUE(result.results.empty());
  EXPECT_EQ(result.version, result.base_version);
  EXPECT_EQ(shard.Ask(SkipOf(0, 1, 0)).outcome, protocol::Outcome::kResult)
      << "a repeated skip gets the result";
}

TEST(Shard, AMeanThatOverflowsIsLeftOutForAll) {
  ShardUnderTest shard(SmallShard(2));
  shard.Send(Contribution(0, 1, 0, 3e38f));
  const auto effects = shard.Send(Contribution(1, 1, 0, 3e38f));
  ASSERT_EQ(effects.size(), 3u);
  EXPECT_THAT(std::get<Notice>(effects[0]).text, HasSubstr("overflowed"));
  const protocol::ExchangeReply& result = *std::get<SendReply>(effects[1]).answer;
  EXPECT_EQ(result.record.n, 0u);
  EXPECT_TRUE(result.results.empty());
  EXPECT_EQ(shard->Stats().overflowed_bundles, 1u);
}

// Returns a contribution to bundle 1 in which the two chunks have different values.
protocol::ExchangeRequest TwoChunks(uint32_t rank, uint64_t step, float first, float second) {
  protocol::ExchangeRequest exchange = Contribution(rank, step, 1, first);
  exchange.frames[1] = EncodedFrame({second});
  return exchange;
}

TEST(Shard, TheFiniteMeansBesideOneThatOverflowsStayOwed) {
  ShardUnderTest shard(SmallShard(2));
  shard.Send(TwoChunks(0, 1, 2, 3e38f));
  const auto effects = shard.Send(TwoChunks(1, 1, 4, 3e38f));
  EXPECT_EQ(std::get<SendReply>(effects.back()).answer->record.n, 0u);
  EXPECT_THAT(shard->DownlinkResidual(1, 0), ElementsAre(3, 3, 3));
  EXPECT_THAT(shard->DownlinkResidual(1, 1), IsEmpty());
  for (uint32_t rank = 0; rank < 2; ++rank) shard.Send(SkipOf(rank, 1, 0));

  for (uint32_t rank = 0; rank < 2; ++rank) shard.Send(SkipOf(rank, 2, 0));
  shard.Send(TwoChunks(0, 2, 1, 5));
  const protocol::ExchangeReply result = shard.Ask(TwoChunks(1, 2, 1, 7));
  EXPECT_THAT(DecodedFrame(result.results.at(0), 3), ElementsAre(4, 4, 4));
  EXPECT_THAT(DecodedFrame(result.results.at(1), 1), ElementsAre(6));
  EXPECT_EQ(shard->ResidualEnergy(), 0);
}

TEST(Shard, WithARuleOnlyTheChunkWhoseMeanOverflowsIsNotUpdated) {
  ShardOptions options = SmallShard(2);
  options.rule =
      job::OptimizerSpec{.name = "sgd", .momentum = 0.5, .location = job::UpdateLocation::kShards};
  options.parameters_agree = false;
  ShardUnderTest shard(options);
  const auto at_rate = [](protocol::ExchangeRequest exchange) {
    exchange.rate = 0.5f;
    return exchange;
  };
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    shard.Send(Contribution(0, 0, bundle, 10));
    shard.Send(SkipOf(1, 0, bundle));
  }
  for (uint32_t rank = 0; rank < 2; ++rank) shard.Send(SkipOf(rank, 1, 0));
  shard.Send(at_rate(TwoChunks(0, 1, 2, 3e38f)));
  const auto effects = shard.Send(at_rate(TwoChunks(1, 1, 4, 3e38f)));
  const auto* notice = std::get_if<Notice>(&effects.front());
  ASSERT_NE(notice, nullptr);
  EXPECT_EQ(notice->fields.event, "mean_left_out");
  EXPECT_THAT(notice->text, HasSubstr("1 of 2 chunks overflowed"));
  const protocol::ExchangeReply first = *std::get<SendReply>(effects.back()).answer;
  EXPECT_EQ(first.record.n, 2u);
  EXPECT_EQ(first.record.rate, 0.5f);
  EXPECT_THAT(DecodedFrame(first.results.at(0), 3), ElementsAre(-1.5f, -1.5f, -1.5f));
  EXPECT_THAT(DecodedFrame(first.results.at(1), 1), ElementsAre(0));

  // The skipped step must not have changed the momentum of this chunk either.
  for (uint32_t rank = 0; rank < 2; ++rank) shard.Send(SkipOf(rank, 2, 0));
  shard.Send(at_rate(TwoChunks(0, 2, 2, 2)));
  const protocol::ExchangeReply second = shard.Ask(at_rate(TwoChunks(1, 2, 2, 2)));
  EXPECT_THAT(DecodedFrame(second.results.at(0), 3), ElementsAre(-1.75f, -1.75f, -1.75f));
  EXPECT_THAT(DecodedFrame(second.results.at(1), 1), ElementsAre(-1));

  // If no mean of the bundle is finite, no chunk of the bundle may be updated.
  for (uint32_t rank = 0; rank < 2; ++rank) shard.Send(SkipOf(rank, 3, 0));
  shard.Send(at_rate(TwoChunks(0, 3, 3e38f, 3e38f)));
  const auto empty = shard.Send(at_rate(TwoChunks(1, 3, 3e38f, 3e38f)));
  EXPECT_EQ(std::get<SendReply>(empty.back()).answer->record.n, 0u);
}

TEST(Shard, DownlinkKeepsWhatItsCodecLeavesOut) {
  ShardUnderTest shard(SmallShard(1, "topk:50%"));
  // For each element, the sum of the means over all steps must equal published + residual.
  double published = 0;
  for (uint64_t step = 1; step <= 6; ++step) {
    protocol::ExchangeRequest exchange = Contribution(0, step, 0, 0);
    exchange.frames = {EncodedFrame({1.0f, 0.25f})};
    published += DecodedFrame(shard.Ask(exchange).results.at(0), 2)[1];
    shard.Send(Contribution(0, step, 1, 0));
  }
  EXPECT_NEAR(published + shard->DownlinkResidual(0, 0)[1], 6 * 0.25, 1e-3);
  EXPECT_GT(shard->ResidualEnergy(), 0);
}

TEST(Shard, StepZeroGivesRankZerosBytesToAll) {
  ShardOptions options = SmallShard(2, "topk:50%");
  options.parameters_agree = false;
  ShardUnderTest shard(options);
  protocol::ExchangeRequest values = Contribution(0, 0, 0, 0);
  values.frames = {EncodedFrame({-0.0f, 1e-40f})};
  EXPECT_EQ(shard.Ask(SkipOf(0, 0, 0)).outcome, protocol::Outcome::kInvalid)
      << "rank 0 must send its values";
  EXPECT_EQ(shard.Ask(Contribution(1, 0, 0, 1)).outcome, protocol::Outcome::kInvalid)
      << "other ranks must not send values";
  protocol::ExchangeRequest lossy = values;
  lossy.frames = {EncodedFrame({1, 2}, "fp16")};
  EXPECT_EQ(shard.Ask(lossy).outcome, protocol::Outcome::kInvalid) << "the values must be lossless";
  EXPECT_EQ(shard.Ask(SkipOf(1, 0, 0)).outcome, protocol::Outcome::kPending);
  const protocol::ExchangeReply result = shard.Ask(values);
  EXPECT_EQ(result.outcome, protocol::Outcome::kResult);
  EXPECT_EQ(result.results, values.frames);
  EXPECT_EQ(shard->ResidualEnergy(), 0);
  EXPECT_EQ(shard->open_step(), 0u);
  shard.Send(SkipOf(1, 0, 1));
  shard.Send(Contribution(0, 0, 1, 3));
  EXPECT_EQ(shard->open_step(), 1u);
}

TEST(Shard, OneStepAheadWaitsForTheOpenOneTwoAheadIsInvalid) {
  ShardUnderTest shard(SmallShard(1));
  protocol::ExchangeRequest ahead = Contribution(0, 2, 0, 5);
  ahead.acked_step = 0;
  EXPECT_EQ(shard.Ask(ahead).outcome, protocol::Outcome::kPending);
  protocol::ExchangeRequest too_far = Contribution(0, 3, 0, 5);
  too_far.acked_step = 0;
  EXPECT_EQ(shard.Ask(too_far).outcome, protocol::Outcome::kInvalid);
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 9, 5)).outcome, protocol::Outcome::kInvalid)
      << "bundle 9 does not exist";
  shard.Send(Contribution(0, 1, 0, 1));
  const auto effects = shard.Send(Contribution(0, 1, 1, 1));
  ASSERT_EQ(effects.size(), 2u);  // The results of bundle 1 of step 1 and of bundle 0 of step 2.
  EXPECT_EQ(std::get<SendReply>(effects[0]).answer->step, 1u);
  EXPECT_EQ(std::get<SendReply>(effects[1]).answer->step, 2u);
  EXPECT_EQ(shard->open_step(), 2u);
}

TEST(Shard, ResultsStayUntilAllRanksAcknowledged) {
  ShardUnderTest shard(SmallShard(2));
  shard.RunStep(1, 1);
  EXPECT_EQ(shard->Stats().log_results, 2u);
  shard.Send(Contribution(0, 2, 0, 1));  // Rank 0 acknowledges step 1.
  EXPECT_EQ(shard.Ask(Contribution(1, 1, 0, 2)).outcome, protocol::Outcome::kResult);
  shard.Send(Contribution(1, 2, 0, 1));
  EXPECT_EQ(shard->Stats().log_results, 1u) << "only step 2's result is kept";
  const protocol::ExchangeReply gone = shard.Ask(Contribution(1, 1, 0, 2));
  EXPECT_EQ(gone.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(gone.message, HasSubstr("no longer kept"));
}

TEST(Shard, TheLogHasALimitButKeepsTheNewestTwoSteps) {
  ShardOptions options = SmallShard(1);
  options.log = {.bytes = 1, .steps = 1024};
  ShardUnderTest shard(options);
  for (uint64_t step = 1; step <= 5; ++step) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      protocol::ExchangeRequest exchange = Contribution(0, step, bundle, 1);
      exchange.acked_step = 0;
      shard.Send(exchange);
    }
  }
  EXPECT_EQ(shard->Stats().log_results, 4u);
  EXPECT_EQ(shard.Ask(Contribution(0, 4, 0, 1)).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard.Ask(Contribution(0, 3, 0, 1)).outcome, protocol::Outcome::kInvalid);
}

TEST(Shard, WindowsFullAtTheBarrierTheLowestOpenBundleIsAlwaysAdmitted) {
  ShardOptions options = SmallShard(2);
  options.window_bytes = 1;
  // Memory for sums, residuals and windows, but none for frames.
  options.max_memory = 3 * 4 * 6 + 2;
  ShardUnderTest shard(options);
  const protocol::ExchangeReply busy = shard.Ask(Contribution(1, 1, 1, 2));
  EXPECT_EQ(busy.outcome, protocol::Outcome::kBusy);
  EXPECT_EQ(busy.retry_after_ms, options.busy_retry_ms);
  EXPECT_EQ(shard.Ask(Contribution(1, 1, 0, 2)).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 2)).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard.Ask(Contribution(1, 1, 1, 2)).outcome, protocol::Outcome::kPending)
      << "the bundle is the lowest open one now";
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 1, 2)).outcome, protocol::Outcome::kResult);
}

// Every retry sends its frames again. While ranks wait for a lost rank, retries must become rarer,
// so that they do not fill the network.
TEST(Shard, BusyOnesComeBackLessOftenTheLongerAStepWaits) {
  ShardOptions options = SmallShard(2);
  options.window_bytes = 1;
  options.max_memory = 3 * 4 * 6 + 2;
  ShardUnderTest shard(options);
  EXPECT_EQ(shard.Ask(Contribution(1, 1, 0, 2)).outcome, protocol::Outcome::kPending);
  const auto retry_after = [&](absl::Duration waited) {
    shard.Advance(waited);
    const protocol::ExchangeReply busy = shard.Ask(Contribution(1, 1, 1, 2));
    EXPECT_EQ(busy.outcome, protocol::Outcome::kBusy);
    return busy.retry_after_ms;
  };
  EXPECT_EQ(retry_after(absl::ZeroDuration()), options.busy_retry_ms);
  EXPECT_EQ(retry_after(absl::Seconds(2)), 250u);
  EXPECT_EQ(retry_after(absl::Seconds(2)), 500u);
  EXPECT_EQ(retry_after(absl::Hours(1)), options.busy_retry_ms_max);
}

TEST(Shard, AJobThatDoesNotFitIsRefusedWithTheNumbers) {
  ShardOptions options = SmallShard(2);
  options.max_memory = 100;
  const auto shard = Shard::Create(options);
  EXPECT_EQ(shard.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(shard.status().message()), HasSubstr("server.max_memory is 100"));
}

TEST(Shard, ResultsGoToTheNewestStreamOfARank) {
  ShardUnderTest shard(SmallShard(2));
  shard.SendOn(10, Contribution(0, 1, 0, 2));
  // A new stream replaces the old one. The worker sends all open requests again.
  shard.SendOn(12, Contribution(0, 1, 0, 2));
  shard->StreamClosed(10);
  const auto effects = shard.SendOn(11, Contribution(1, 1, 0, 4));
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(std::get<SendReply>(effects[0]).stream, 12u);
  shard->StreamClosed(12);
  shard.SendOn(11, Contribution(1, 1, 1, 4));
  shard->StreamClosed(11);
  EXPECT_EQ(shard.SendOn(13, Contribution(0, 1, 1, 2)).size(), 1u) << "rank 1 has no open stream";
}

TEST(Shard, TheEndIsToldToAllAndStays) {
  ShardUnderTest shard(SmallShard(2));
  shard.Send(Contribution(0, 1, 0, 2));
  const auto effects = shard->End("rank 1 was lost");
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<SendReply>(effects[0]).answer->outcome, protocol::Outcome::kFenced);
  const protocol::ExchangeReply later = shard.Ask(Contribution(1, 1, 0, 2));
  EXPECT_EQ(later.outcome, protocol::Outcome::kFenced);
  EXPECT_EQ(later.message, "rank 1 was lost");
}

TEST(Shard, ARankAlwaysLateIsNoticedOncePerStepAndMeasured) {
  ShardUnderTest shard(SmallShard(2));
  shard.Send(Contribution(0, 1, 0, 2));
  shard.Advance(absl::Seconds(4));
  EXPECT_TRUE(shard->Tick(shard.now()).empty());
  shard.Advance(absl::Seconds(2));
  const auto effects = shard->Tick(shard.now());
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<Notice>(effects[0]).fields.event, "bundle_waits");
  EXPECT_THAT(std::get<Notice>(effects[0]).text,
              AllOf(HasSubstr("step 1, bundle 0"), HasSubstr("waited 6s for rank 1")));
  EXPECT_TRUE(shard->Tick(shard.now()).empty());
  shard.Send(Contribution(1, 1, 0, 2));
  EXPECT_DOUBLE_EQ(shard->Stats().wait_seconds, 6);
}

TEST(Shard, CountsBytesBesideWhatTheyWouldHaveBeen) {
  ShardUnderTest shard(SmallShard(2));
  shard.RunStep(1, 1);
  const ShardStats stats = shard->Stats();
  EXPECT_EQ(stats.dense_bytes_in, 2u * 6 * 4);
  EXPECT_EQ(stats.bytes_in, 2u * (6 * 4 + 3 * compress::kFrameHeaderSize));
  EXPECT_EQ(stats.dense_bytes_out, 2u * 6 * 4);
  EXPECT_EQ(stats.bytes_out, stats.bytes_in)
      << "codec none is used both ways with as many ranks as senders";
  EXPECT_EQ(stats.highest_closed_step, 1u);
  EXPECT_EQ(stats.bundles_closed, 2u);
  EXPECT_EQ(stats.held_bytes, 0u);
}

}  // namespace
}  // namespace sluice::server
