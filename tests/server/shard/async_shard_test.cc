// SPDX-License-Identifier: Apache-2.0
// Tests a shard whose ranks do not wait for each other: modes async and ssp.
#include "server/shard/async_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Returns SmallShard with plain gradient descent. All parameters are 100 after step 0.
ShardOptions AsyncOptions(uint32_t ranks, absl::string_view downlink = "none") {
  ShardOptions options = SmallShard(ranks, downlink);
  options.exchange.mode = job::Mode::kAsync;
  options.rule = job::OptimizerSpec{.name = "sgd", .lr = 1};
  options.parameters_agree = false;
  return options;
}

ShardOptions SspOptions(uint32_t ranks, uint32_t staleness) {
  ShardOptions options = AsyncOptions(ranks);
  options.exchange.mode = job::Mode::kSsp;
  options.exchange.staleness = staleness;
  return options;
}

protocol::ExchangeRequest SkipOn(uint32_t rank, uint64_t step, uint32_t bundle, uint64_t base) {
  protocol::ExchangeRequest exchange = SkipOf(rank, step, bundle);
  exchange.base_version = base;
  return exchange;
}

// Runs step 0 of all ranks. All ranks then have version 1.
void Begin(ShardUnderTest* shard) {
  for (uint32_t bundle = 0; bundle < (*shard)->bundles(); ++bundle) {
    shard->Send(Contribution(0, 0, bundle, 100));
    for (uint32_t rank = 1; rank < (*shard)->options().incarnations.size(); ++rank) {
      ASSERT_EQ(shard->Ask(SkipOf(rank, 0, bundle)).outcome, protocol::Outcome::kResult);
    }
  }
}

std::vector<const protocol::ExchangeReply*> ResultsIn(const std::vector<ShardEffect>& effects) {
  std::vector<const protocol::ExchangeReply*> results;
  for (const ShardEffect& effect : effects) {
    const auto* reply = std::get_if<SendReply>(&effect);
    if (reply != nullptr && reply->answer->outcome == protocol::Outcome::kResult) {
      results.push_back(reply->answer.get());
    }
  }
  return results;
}

// Tracks a worker's parameters of bundle 0 after each result.
struct Holder {
  uint64_t version = 0;
  std::vector<float> values = {0, 0};

  void Take(const protocol::ExchangeReply& answer) {
    if (!answer.results.empty()) {
      if (answer.exact) {
        values = {0, 0};
      } else {
        EXPECT_EQ(answer.base_version, version);
      }
      compress::AddValidFrames(protocol::FrameBytes(answer.results.at(0)), absl::MakeSpan(values));
    }
    version = answer.version;
  }
};

TEST(AsyncShard, NeedsARule) {
  ShardOptions options = AsyncOptions(2);
  options.rule.reset();
  EXPECT_THAT(Shard::Create(options).status().message(), HasSubstr("async needs an update rule"));
  options = AsyncOptions(2);
  options.parameters_agree = true;
  EXPECT_FALSE(Shard::Create(options).ok());
}

TEST(AsyncShard, CannotGoThroughStepsAgain) {
  ShardOptions options = AsyncOptions(2);
  options.replay = true;
  EXPECT_FALSE(Shard::Create(options).ok());
}

TEST(AsyncShard, GivesRankZerosParametersToAll) {
  ShardUnderTest shard(AsyncOptions(3));
  EXPECT_EQ(shard.Ask(SkipOf(1, 0, 0)).outcome, protocol::Outcome::kPending)
      << "no parameters have arrived yet";
  const auto effects = shard.Send(Contribution(0, 0, 0, 100));
  const auto results = ResultsIn(effects);
  ASSERT_THAT(results, SizeIs(2)) << "rank 0 and the waiting rank 1 are answered";
  for (const protocol::ExchangeReply* result : results) {
    EXPECT_TRUE(result->exact);
    EXPECT_EQ(result->version, 1u);
    EXPECT_THAT(DecodedFrame(result->results.at(0), 2), ElementsAre(100, 100));
    EXPECT_EQ(result->record.n, 1u) << "only rank 0 contributes";
    EXPECT_EQ(result->record.included[0].rank, 0u);
    EXPECT_EQ(result->record.included[0].checksum,
              protocol::BundleChecksum(Contribution(0, 0, 0, 100).frames));
  }
  EXPECT_EQ(std::get<SendReply>(effects[1]).stream, 2u);
  ASSERT_THAT(results[1]->record.included, SizeIs(2));
  EXPECT_TRUE(results[1]->record.included[1].skipped);
  EXPECT_EQ(shard.Ask(SkipOf(2, 0, 0)).version, 1u) << "a late rank gets the same version";
}

TEST(AsyncShard, ClosesEveryContributionByItself) {
  ShardUnderTest shard(AsyncOptions(3));
  Begin(&shard);
  const protocol::ExchangeReply answer = shard.Ask(Push(1, 1, 0, 3, 1));
  ASSERT_EQ(answer.outcome, protocol::Outcome::kResult);
  EXPECT_EQ(answer.record.n, 1u);
  EXPECT_EQ(answer.record.rate, 1);
  EXPECT_EQ(answer.record.step, 1u);
  ASSERT_THAT(answer.record.included, SizeIs(1));
  EXPECT_EQ(answer.record.included[0].rank, 1u);
  EXPECT_EQ(answer.record.included[0].origin_step, 1u);
  EXPECT_EQ(answer.record.included[0].checksum,
            protocol::BundleChecksum(Push(1, 1, 0, 3, 1).frames));
  EXPECT_EQ(answer.record.result_checksum, protocol::BundleChecksum(answer.results));
  EXPECT_FALSE(answer.exact);
  EXPECT_EQ(answer.base_version, 1u);
  EXPECT_EQ(answer.version, 2u);
  EXPECT_THAT(DecodedFrame(answer.results.at(0), 2), ElementsAre(-3, -3));
  EXPECT_EQ(shard->open_step(), 1u) << "other ranks have not begun";
}

TEST(AsyncShard, UpdatesAtTheSendersRate) {
  ShardUnderTest shard(AsyncOptions(2));
  Begin(&shard);
  protocol::ExchangeRequest exchange = Push(1, 1, 0, 3, 1);
  exchange.rate = 0.5f;
  EXPECT_THAT(DecodedFrame(shard.Ask(exchange).results.at(0), 2), ElementsAre(-1.5, -1.5));
}

TEST(AsyncShard, TakesARepeatOnceWhateverItsBytes) {
  ShardUnderTest shard(AsyncOptions(2));
  Begin(&shard);
  const protocol::ExchangeReply first = shard.Ask(Push(1, 1, 0, 3, 1));
  const protocol::ExchangeReply again = shard.Ask(Push(1, 1, 0, 3, 1));
  EXPECT_EQ(again.record, first.record);
  EXPECT_EQ(again.version, 2u);
  const protocol::ExchangeReply other = shard.Ask(Push(1, 1, 0, 5, 1));
  EXPECT_EQ(other.outcome, protocol::Outcome::kResult);
  EXPECT_EQ(other.version, 2u) << "the repeat makes no new version";
  EXPECT_EQ(other.record.n, 0u);
  ASSERT_THAT(other.record.included, SizeIs(1));
  EXPECT_TRUE(other.record.included[0].skipped);
  EXPECT_EQ(other.record.included[0].checksum,
            protocol::BundleChecksum(Push(1, 1, 0, 5, 1).frames));
  EXPECT_EQ(shard->Stats().repeats, 2u);
  EXPECT_EQ(shard->Stats().contributions, 2u * 2 + 1);
}

TEST(AsyncShard, RefusesWhatIsAhead) {
  ShardUnderTest shard(AsyncOptions(2));
  EXPECT_EQ(shard.Ask(Push(1, 1, 0, 3, 0)).outcome, protocol::Outcome::kInvalid)
      << "the shard has no parameters yet";
  Begin(&shard);
  const protocol::ExchangeReply answer = shard.Ask(Push(1, 2, 0, 3, 1));
  EXPECT_EQ(answer.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(answer.message, AllOf(HasSubstr("rank 1, step 2"), HasSubstr("ahead of step 1")));
}

TEST(AsyncShard, RefusesAVersionThatIsNot) {
  ShardUnderTest shard(AsyncOptions(2));
  Begin(&shard);
  EXPECT_THAT(shard.Ask(Push(1, 1, 0, 3, 2)).message, HasSubstr("version 2; the newest is 1"));
}

TEST(AsyncShard, ASkipMovesTheClockAndNothingElse) {
  ShardUnderTest shard(AsyncOptions(2));
  Begin(&shard);
  const protocol::ExchangeReply answer = shard.Ask(SkipOn(1, 1, 0, 1));
  EXPECT_EQ(answer.record.n, 0u);
  EXPECT_EQ(answer.version, 1u);
  EXPECT_THAT(answer.results, IsEmpty());
  EXPECT_EQ(shard.Ask(Push(1, 2, 0, 3, 1)).record.n, 1u);
}

TEST(AsyncShard, AsksForThePayloadOfWhatItHasNot) {
  ShardUnderTest shard(AsyncOptions(2));
  Begin(&shard);
  EXPECT_EQ(shard.Ask(KeysOf(Push(1, 1, 0, 3, 1))).outcome, protocol::Outcome::kNeed);
  shard.Send(Push(1, 1, 0, 3, 1));
  const protocol::ExchangeReply answer = shard.Ask(KeysOf(Push(1, 1, 0, 3, 1)));
  EXPECT_EQ(answer.outcome, protocol::Outcome::kResult);
  EXPECT_EQ(answer.record.n, 1u);
}

TEST(AsyncShard, ARoundOfAllRanksCostsEachAboutOneFrame) {
  constexpr uint32_t kRanks = 8;
  constexpr uint64_t kRounds = 20;
  ShardUnderTest shard(AsyncOptions(kRanks, "fp16"));
  Begin(&shard);
  std::vector<uint64_t> versions(kRanks, 1);
  const uint64_t before = shard->Stats().bytes_out;
  uint64_t frames = 0;
  for (uint64_t step = 1; step <= kRounds; ++step) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const protocol::ExchangeReply answer = shard.Ask(Push(rank, step, 0, 1, versions[rank]));
      if (!answer.results.empty()) {
        EXPECT_FALSE(answer.exact);
        frames += answer.results.at(0).size() / EncodedFrame({1, 1}, "fp16").size();
      }
      versions[rank] = answer.version;
    }
  }
  EXPECT_EQ(frames, kRanks * kRounds);
  EXPECT_EQ(shard->Stats().publications, kRounds);
  EXPECT_EQ(shard->Stats().bytes_out - before,
            kRanks * kRounds * EncodedFrame({1, 1}, "fp16").size());
}

TEST(AsyncShard, PublishesWhenAllCouldHaveContributed) {
  ShardUnderTest shard(AsyncOptions(3, "fp16"));
  Begin(&shard);
  // Two ranks repeat their old version, so no request comes from a rank with the newest version.
  protocol::ExchangeReply answer = shard.Ask(Push(1, 1, 0, 1, 1));
  EXPECT_EQ(answer.version, 2u);
  EXPECT_EQ(shard.Ask(Push(2, 1, 0, 1, 1)).version, 2u);
  EXPECT_EQ(shard.Ask(Push(2, 2, 0, 1, 1)).version, 2u);
  EXPECT_EQ(shard.Ask(Push(2, 3, 0, 1, 1)).version, 5u) << "three more contributions are published";
}

TEST(AsyncShard, BringsWhoIsBehindWhatItLacksOneAfterTheOther) {
  ShardOptions options = AsyncOptions(2, "int8");
  ShardUnderTest shard(options);
  Begin(&shard);
  Holder slow{.version = 1, .values = {100, 100}};
  Holder fast = slow;
  fast.Take(shard.Ask(Push(1, 1, 0, 1.25f, fast.version)));
  const protocol::ExchangeReply answer = shard.Ask(Push(0, 1, 0, 0.5f, slow.version));
  slow.Take(answer);
  EXPECT_EQ(slow.values, fast.values);
  EXPECT_EQ(slow.version, fast.version);
}

// A rank lacks publications that are larger than the parameters of bundle 0, so the log has evicted
// some of them. The shard must then send the exact parameters.
TEST(AsyncShard, GivesParametersWhereThatIsLess) {
  ShardUnderTest shard(AsyncOptions(4));
  Begin(&shard);
  uint64_t version = 1;
  for (uint64_t step = 1; step <= 3; ++step) {
    version = shard.Ask(Push(1, step, 0, 1, version)).version;
    EXPECT_LE(shard->Stats().log_bytes, shard->Stats().log_limit);
  }
  const protocol::ExchangeReply answer = shard.Ask(Push(2, 1, 0, 1, 1));
  EXPECT_TRUE(answer.exact);
  EXPECT_THAT(DecodedFrame(answer.results.at(0), 2), ElementsAre(97, 97));
  EXPECT_EQ(answer.version, 4u) << "the rank's own contribution is not published yet";
  EXPECT_EQ(shard->Stats().exact_results, 2u * 4 + 1);
}

TEST(AsyncShard, GivesParametersToWhomItKnowsNothingOf) {
  ShardUnderTest shard(AsyncOptions(2));
  Begin(&shard);
  const protocol::ExchangeReply answer = shard.Ask(Push(1, 1, 0, 3, 0));
  EXPECT_TRUE(answer.exact);
  EXPECT_EQ(answer.version, 1u);
}

TEST(AsyncShard, TellsHowStaleAContributionWas) {
  ShardUnderTest shard(AsyncOptions(3));
  Begin(&shard);
  EXPECT_EQ(shard.Ask(Push(0, 1, 0, 1, 1)).staleness, 0u);
  EXPECT_EQ(shard.Ask(Push(1, 1, 0, 1, 1)).staleness, 1u);
  EXPECT_EQ(shard.Ask(Push(0, 2, 0, 1, 2)).staleness, 1u) << "rank 1's update came in between";
  EXPECT_EQ(shard.Ask(Push(2, 1, 0, 1, 1)).staleness, 3u);
  const ShardStats stats = shard->Stats();
  EXPECT_EQ(stats.staleness_total, 5u);
  EXPECT_EQ(stats.staleness_counts[0], 1u);
  EXPECT_EQ(stats.staleness_counts[1], 2u);
  EXPECT_EQ(stats.staleness_counts[3], 1u);
}

TEST(AsyncShard, DividesTheRateByTheStalenessIfAsked) {
  ShardOptions options = AsyncOptions(3);
  options.exchange.staleness_aware_lr = true;
  ShardUnderTest shard(options);
  Begin(&shard);
  EXPECT_EQ(shard.Ask(Push(0, 1, 0, 1, 1)).record.rate, 1);
  EXPECT_EQ(shard.Ask(Push(1, 1, 0, 1, 1)).record.rate, 0.5f);
  const protocol::ExchangeReply answer = shard.Ask(Push(0, 2, 0, 0, 2));
  EXPECT_THAT(DecodedFrame(answer.results.at(0), 2), ElementsAre(-0.5, -0.5));
}

TEST(AsyncShard, EverythingOwedIsSentInTheEnd) {
  ShardUnderTest shard(AsyncOptions(2, "topk:50%"));
  Begin(&shard);
  Holder holder{.version = 1, .values = {100, 100}};
  protocol::ExchangeRequest exchange = Push(1, 1, 0, 0, 1);
  exchange.frames = {EncodedFrame({4, 1})};
  holder.Take(shard.Ask(exchange));
  EXPECT_GT(shard->ResidualEnergy(), 0);
  for (uint64_t step = 2; step < 6; ++step) {
    holder.Take(shard.Ask(Push(1, step, 0, 0, holder.version)));
  }
  EXPECT_EQ(shard->ResidualEnergy(), 0);
  EXPECT_THAT(holder.values, ElementsAre(96, 99));
}

TEST(AsyncShard, SaysThatTrainingDiverged) {
  ShardUnderTest shard(AsyncOptions(2));
  Begin(&shard);
  protocol::ExchangeRequest exchange = Push(1, 1, 0, 3e38f, 1);
  exchange.rate = 100;
  const auto effects = shard.Send(exchange);
  const auto is_alarm = [](const ShardEffect& e) { return std::holds_alternative<Alarm>(e); };
  const auto alarm = std::find_if(effects.begin(), effects.end(), is_alarm);
  ASSERT_NE(alarm, effects.end());
  EXPECT_THAT(std::get<Alarm>(*alarm).text, HasSubstr("training diverged: after update 1"));
  EXPECT_THAT(ResultsIn(effects), SizeIs(1)) << "the sender must be answered despite the alarm";
}

TEST(SspShard, HoldsWhoIsAheadUntilTheSlowestFollows) {
  ShardUnderTest shard(SspOptions(3, 1));
  Begin(&shard);
  EXPECT_EQ(shard.Ask(Push(0, 1, 0, 1, 1)).outcome, protocol::Outcome::kResult)
      << "rank 0 may be one step ahead";
  EXPECT_EQ(shard.Ask(Push(0, 2, 0, 1, 2)).outcome, protocol::Outcome::kPending)
      << "rank 0 may not be two steps ahead";
  EXPECT_EQ(shard.Ask(Push(0, 2, 0, 1, 2)).outcome, protocol::Outcome::kPending)
      << "a repeated request must wait too";
  EXPECT_THAT(ResultsIn(shard.Send(Push(1, 1, 0, 1, 1))), SizeIs(1)) << "rank 2 is the slowest";
  shard.Advance(absl::Seconds(2));
  const auto effects = shard.Send(Push(2, 1, 0, 1, 1));
  const auto results = ResultsIn(effects);
  ASSERT_THAT(results, SizeIs(2));
  EXPECT_EQ(std::get<SendReply>(effects[0]).stream, 3u);
  EXPECT_EQ(std::get<SendReply>(effects[1]).stream, 1u);
  EXPECT_EQ(results[1]->step, 2u);
  EXPECT_EQ(results[1]->version, 5u) << "the answer has the newest version of that time";
  EXPECT_EQ(shard->Stats().wait_seconds, 2);
}

TEST(SspShard, OfNoStalenessIsABarrier) {
  ShardUnderTest shard(SspOptions(2, 0));
  Begin(&shard);
  EXPECT_EQ(shard.Ask(Push(0, 1, 0, 1, 1)).outcome, protocol::Outcome::kPending);
  EXPECT_THAT(ResultsIn(shard.Send(Push(1, 1, 0, 1, 1))), SizeIs(2));
}

TEST(SspShard, WhoHasFinishedHoldsNobody) {
  ShardUnderTest shard(SspOptions(2, 1));
  Begin(&shard);
  for (uint64_t step = 1; step <= 3; ++step) {
    shard.Send(Push(0, step, 0, 1, 1));
    shard.Send(Push(1, step, 0, 1, 1));
    EXPECT_EQ(shard->Stats().wait_seconds, 0);
  }
  shard->StreamClosed(1);
  EXPECT_EQ(shard.Ask(KeysOf(Push(1, 3, 0, 1, 1))).outcome, protocol::Outcome::kResult);
}

TEST(SspShard, AnswersOnTheStreamThatCameLast) {
  ShardUnderTest shard(SspOptions(2, 0));
  Begin(&shard);
  shard.Send(Push(0, 1, 0, 1, 1));
  shard->StreamClosed(1);
  EXPECT_THAT(ResultsIn(shard.Send(Push(1, 1, 0, 1, 1))), SizeIs(1));
  const auto effects = shard.SendOn(9, Push(0, 1, 0, 1, 1));
  ASSERT_THAT(ResultsIn(effects), SizeIs(1)) << "a repeated request is answered";
  EXPECT_EQ(std::get<SendReply>(effects[0]).stream, 9u);
  EXPECT_EQ(ResultsIn(effects)[0]->record.n, 1u);
}

// In this job, bundle 1 holds buffers.
TEST(AsyncShard, ExchangesBuffersInStepZeroAlone) {
  ShardOptions options = AsyncOptions(2);
  options.table[0].role = protocol::TensorRole::kBuffer;
  options.layout.bundles[0][1].buffers = true;
  ShardUnderTest shard(options);
  Begin(&shard);
  EXPECT_GT(shard->Stats().held_bytes, 0u);
  EXPECT_THAT(shard.Ask(Push(1, 1, 1, 3, 1)).message,
              HasSubstr("buffers are not exchanged in mode async"));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const protocol::ExchangeReply answer = shard.Ask(SkipOn(rank, 1, 1, 1));
    EXPECT_THAT(answer.results, IsEmpty());
    EXPECT_EQ(answer.version, 1u);
  }
  EXPECT_EQ(shard->Stats().held_bytes, 0u) << "no rank needs rank 0's buffers any more";
}

TEST(AsyncShard, FencesAndEndsAsAnyShard) {
  ShardUnderTest shard(AsyncOptions(2));
  Begin(&shard);
  protocol::ExchangeRequest stranger = Push(1, 1, 0, 3, 1);
  stranger.sender.incarnation = 5;
  EXPECT_EQ(shard.Ask(stranger).outcome, protocol::Outcome::kFenced);
  const auto effects = shard->Suspend(3, "back");
  ASSERT_THAT(effects, SizeIs(2));
  EXPECT_EQ(std::get<SendReply>(effects[0]).answer->term, 3u);
  EXPECT_EQ(shard.Ask(Push(1, 1, 0, 3, 1)).outcome, protocol::Outcome::kFenced);
}

TEST(AsyncShard, RefusesAJobThatDoesNotFit) {
  ShardOptions options = AsyncOptions(2);
  options.max_memory = 2 * options.window_bytes + 100;
  EXPECT_TRUE(absl::IsResourceExhausted(Shard::Create(options).status()));
}

const WriteSnapshot* SnapshotIn(const std::vector<ShardEffect>& effects) {
  for (const ShardEffect& effect : effects) {
    if (const auto* taken = std::get_if<WriteSnapshot>(&effect)) return taken;
  }
  return nullptr;
}

uint64_t NamedIn(const std::vector<ShardEffect>& effects) {
  for (const ShardEffect& effect : effects) {
    if (const auto* named = std::get_if<CheckpointNamed>(&effect)) return named->step;
  }
  return 0;
}

TEST(AsyncShard, NamesACheckpointAheadOfTheFurthest) {
  ShardUnderTest shard(AsyncOptions(2));
  Begin(&shard);
  for (uint64_t step = 1; step <= 5; ++step) shard.Send(Push(1, step, 0, 1, 1));
  EXPECT_EQ(shard->NameCheckpoint(1), 7u);
  const auto effects = shard.Send(Push(0, 1, 0, 1, 1));
  EXPECT_EQ(NamedIn(effects), 7u);
  EXPECT_EQ(ResultsIn(effects)[0]->checkpoint_step, 7u);
  EXPECT_EQ(shard->NameCheckpoint(100), 7u) << "only one checkpoint is named at a time";
}

// Returns the snapshot after step 3. Rank 1 is at step `ahead` when rank 0 reaches step 3.
std::shared_ptr<const protocol::ShardSnapshot> SnapshotAfterThree(ShardUnderTest* shard,
                                                                  uint64_t ahead = 5) {
  Begin(shard);
  (*shard)->NameCheckpoint(3);
  std::shared_ptr<const protocol::ShardSnapshot> snapshot;
  for (const auto& [rank, last] : {std::pair<uint32_t, uint64_t>{1, ahead}, {0, 3}}) {
    for (uint64_t step = 1; step <= last; ++step) {
      for (uint32_t bundle = 0; bundle < 2; ++bundle) {
        const auto effects = shard->Send(Push(rank, step, bundle, 1, 1));
        const WriteSnapshot* const taken = SnapshotIn(effects);
        if (taken != nullptr) snapshot = taken->snapshot;
        EXPECT_EQ(taken != nullptr, rank == 0 && step == 3 && bundle == 1);
      }
    }
  }
  return snapshot;
}

TEST(AsyncShard, TakesASnapshotWhenTheSlowestIsThere) {
  ShardUnderTest shard(AsyncOptions(2, "topk:50%"));
  const std::shared_ptr<const protocol::ShardSnapshot> snapshot = SnapshotAfterThree(&shard);
  ASSERT_NE(snapshot, nullptr);
  EXPECT_EQ(snapshot->step, 3u);
  EXPECT_THAT(snapshot->clocks, ElementsAre(3, 5, 3, 5));
}

TEST(AsyncShard, GoesOnFromASnapshotAndTakesNothingTwice) {
  ShardUnderTest before(AsyncOptions(2, "topk:50%"));
  ShardOptions options = AsyncOptions(2, "topk:50%");
  options.restore = SnapshotAfterThree(&before);
  options.parameters_agree = true;
  options.first_step = 4;
  ShardUnderTest shard(options);
  const float owed = before->DownlinkResidual(0, 0)[0];
  EXPECT_EQ(shard->DownlinkResidual(0, 0)[0], owed);
  const protocol::ExchangeReply repeat = shard.Ask(Push(1, 4, 0, 7, 0));
  EXPECT_EQ(repeat.outcome, protocol::Outcome::kResult);
  EXPECT_EQ(repeat.record.n, 0u) << "step 4 of rank 1 is in the snapshot";
  EXPECT_TRUE(repeat.exact);
  EXPECT_EQ(shard.Ask(Push(1, 5, 0, 7, repeat.version)).record.n, 0u);
  const protocol::ExchangeReply taken = shard.Ask(Push(1, 6, 0, 7, repeat.version));
  EXPECT_EQ(taken.record.n, 1u);
  EXPECT_EQ(shard.Ask(Push(0, 4, 0, 7, repeat.version)).record.n, 1u);
  EXPECT_EQ(shard->open_step(), 4u);
}

// A restored rank is behind its restored clock, so the shard takes its own part of a checkpoint
// without waiting for that rank. The shard must still announce the checkpoint to the rank.
TEST(AsyncShard, WhoIsBehindItsClockHearsOfACheckpointToo) {
  ShardUnderTest before(AsyncOptions(2));
  ShardOptions options = AsyncOptions(2);
  options.restore = SnapshotAfterThree(&before, 9);
  options.parameters_agree = true;
  options.first_step = 4;
  ShardUnderTest shard(options);
  const auto step = [&](uint32_t rank, uint64_t number) {
    shard.Send(Push(rank, number, 0, 7, 0));
    return shard.Send(Push(rank, number, 1, 7, 0));
  };
  shard->NameCheckpoint(5);
  // The restored clock of rank 1 is at 9, but rank 1 has sent nothing yet.
  for (const uint64_t number : {4, 5}) EXPECT_EQ(SnapshotIn(step(0, number)), nullptr);
  ASSERT_NE(SnapshotIn(step(0, 6)), nullptr);
  EXPECT_EQ(ResultsIn(step(1, 4))[0]->checkpoint_step, 6u);
  EXPECT_EQ(ResultsIn(step(1, 6))[0]->checkpoint_step, 0u) << "rank 1 is past the checkpoint";
}

TEST(AsyncShard, RefusesASnapshotThatDoesNotFit) {
  ShardUnderTest before(AsyncOptions(2));
  const std::shared_ptr<const protocol::ShardSnapshot> good = SnapshotAfterThree(&before);
  ShardOptions options = AsyncOptions(2);
  options.parameters_agree = true;
  options.first_step = 4;
  const auto refusal = [&](const auto& change) {
    auto bad = std::make_shared<protocol::ShardSnapshot>(*good);
    change(bad.get());
    options.restore = bad;
    return std::string(Shard::Create(options).status().message());
  };
  EXPECT_THAT(refusal([](protocol::ShardSnapshot* s) { s->clocks.pop_back(); }),
              HasSubstr("3 clocks"));
  EXPECT_THAT(refusal([](protocol::ShardSnapshot* s) { s->clocks[0] = 2; }),
              HasSubstr("clock is 2"));
  EXPECT_THAT(refusal([](protocol::ShardSnapshot* s) { s->clocks[0] = ~uint64_t{0}; }),
              HasSubstr("clock"));
  EXPECT_THAT(refusal([](protocol::ShardSnapshot* s) { s->versions[0] = 99; }),
              HasSubstr("version 99"));
  EXPECT_THAT(refusal([](protocol::ShardSnapshot* s) { s->replica.clear(); }),
              HasSubstr("cannot continue"));
}

TEST(AsyncShard, OfOtherRanksBeginsAfterTheCheckpointsStep) {
  ShardUnderTest before(AsyncOptions(2));
  ShardOptions options = AsyncOptions(3);
  options.restore = SnapshotAfterThree(&before);
  options.restored_ranks = 2;
  options.parameters_agree = true;
  options.first_step = 4;
  ShardUnderTest shard(options);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(shard.Ask(Push(rank, 4, 0, 7, 0)).record.n, 1u);
  }
}

// Shard 0 names the checkpoints itself. It must refuse a request that refers to a checkpoint it has
// not named.
TEST(AsyncShard, LearnsOfACheckpointFromRequests) {
  ShardOptions options = AsyncOptions(2);
  options.shard = 0;
  ShardUnderTest shard(options);
  Begin(&shard);
  protocol::ExchangeRequest exchange = Push(1, 1, 0, 1, 1);
  exchange.checkpoint_step = 3;
  EXPECT_THAT(shard.Ask(exchange).message, HasSubstr(", but none is named"));
}

}  // namespace
}  // namespace sluice::server
