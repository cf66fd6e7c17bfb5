// SPDX-License-Identifier: Apache-2.0
// Tests a shard that closes steps without late ranks, with scripted schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kGrace = absl::Milliseconds(20);

ShardOptions QuorumShard(uint32_t ranks, uint32_t quorum, absl::Duration timeout = kGrace) {
  ShardOptions options = SmallShard(ranks);
  options.exchange.quorum = quorum;
  options.exchange.straggler_timeout = timeout;
  return options;
}

// Returns each contribution as text: "0@7" is the work of rank 0 for step 7.
std::vector<std::string> Places(const protocol::ClosingRecord& record) {
  std::vector<std::string> places;
  for (const protocol::Included& included : record.included) {
    places.push_back(
        absl::StrCat(included.rank, "@", included.origin_step, included.skipped ? " skipped" : ""));
  }
  return places;
}

// Closes the step with ranks 0 and 1, which each send `value` in both bundles. Returns the results
// for rank 0, by bundle.
std::map<uint32_t, protocol::ExchangeReply> CloseByTwo(ShardUnderTest* shard, uint64_t step,
                                                       float value) {
  std::map<uint32_t, protocol::ExchangeReply> results;
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (const auto& [stream, result] :
           ResultsByStream(shard->Send(Contribution(rank, step, bundle, value)))) {
        if (stream == 1) results[bundle] = result;
      }
    }
  }
  return results;
}

TEST(Quorum, ClosesWithoutTheLateOneWhenGraceIsOver) {
  ShardUnderTest shard(QuorumShard(3, 2));
  shard.Send(Contribution(0, 1, 0, 3));
  EXPECT_EQ(shard->tick_due(), absl::InfiniteFuture());
  shard.Advance(absl::Seconds(1));
  EXPECT_EQ(shard.Ask(Contribution(2, 1, 0, 9)).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard->tick_due(), shard.now() + kGrace)
      << "the grace period begins when the quorum is complete";
  EXPECT_THAT(shard->Tick(shard.now() + kGrace - absl::Nanoseconds(1)), IsEmpty());
  const auto results = ResultsByStream(shard->Tick(shard.now() + kGrace));
  ASSERT_EQ(results.size(), 2u) << "the late rank is answered when it contributes";
  const protocol::ExchangeReply& result = results.at(1);
  EXPECT_THAT(Places(result.record), ElementsAre("0@1", "2@1"));
  EXPECT_EQ(result.record.n, 2u);
  EXPECT_THAT(DecodedFrame(result.results.at(0), 2), ElementsAre(6, 6));
  EXPECT_EQ(shard->tick_due(), absl::InfiniteFuture());
  EXPECT_EQ(shard->Stats().quorum_bundles, 1u);
}

TEST(Quorum, WhoComesWithinGraceIsIncluded) {
  ShardUnderTest shard(QuorumShard(3, 2));
  shard.Send(Contribution(0, 1, 0, 3));
  shard.Send(Contribution(1, 1, 0, 6));
  shard.Advance(kGrace - absl::Milliseconds(1));
  const auto results = ResultsByStream(shard.Send(Contribution(2, 1, 0, 9)));
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results.at(1).record.n, 3u);
  EXPECT_EQ(shard->Stats().quorum_bundles, 0u);
}

TEST(Quorum, WithoutGraceTheLastOfTheQuorumCloses) {
  ShardUnderTest shard(QuorumShard(3, 2, absl::ZeroDuration()));
  shard.Send(Contribution(0, 1, 0, 3));
  EXPECT_EQ(ResultsByStream(shard.Send(Contribution(1, 1, 0, 6))).size(), 2u);
}

TEST(Quorum, ClosesOneBundleAndNotAnother) {
  ShardUnderTest shard(QuorumShard(3, 2));
  shard.Send(Contribution(0, 1, 0, 3));
  shard.Send(Contribution(1, 1, 0, 6));
  shard.Send(Contribution(0, 1, 1, 3));
  shard.Advance(kGrace);
  shard->Tick(shard.now());
  EXPECT_EQ(shard->open_step(), 1u);
  EXPECT_EQ(shard.Ask(Contribution(0, 1, 0, 3)).record.n, 2u);
  shard.Send(Contribution(1, 1, 1, 6));
  // Bundle 0 closed without rank 2. Bundle 1 still waits for rank 2.
  const auto results = ResultsByStream(shard.Send(Contribution(2, 1, 1, 9)));
  EXPECT_EQ(results.at(3).record.n, 3u);
  EXPECT_EQ(shard->open_step(), 2u);
  // Rank 2's work for bundle 0 must join the next step.
  const protocol::ExchangeReply late = shard.Ask(Contribution(2, 1, 0, 9));
  EXPECT_THAT(Places(late.record), ElementsAre("0@1", "1@1"));
  CloseByTwo(&shard, 2, 0);
  shard->Tick(shard.now() + 2 * kGrace);
  EXPECT_THAT(Places(shard.Ask(Contribution(0, 2, 0, 0)).record), ElementsAre("0@2", "1@2", "2@1"));
  EXPECT_THAT(Places(shard.Ask(Contribution(0, 2, 1, 0)).record), ElementsAre("0@2", "1@2"));
}

TEST(Quorum, LateWorkIsAnsweredFromTheLogAndSummedWithItsStep) {
  ShardUnderTest shard(QuorumShard(3, 2, absl::ZeroDuration()));
  for (uint64_t step = 1; step <= 3; ++step) CloseByTwo(&shard, step, 1);
  const protocol::ExchangeReply late = shard.Ask(Contribution(2, 1, 0, 8));
  EXPECT_EQ(late.outcome, protocol::Outcome::kResult);
  EXPECT_EQ(late.step, 1u);
  EXPECT_EQ(late.open_step, 4u) << "rank 2 may skip the steps before the open one";
  EXPECT_THAT(Places(late.record), ElementsAre("0@1", "1@1"));
  EXPECT_EQ(shard->Stats().late_contributions, 1u);
  EXPECT_GT(shard->Stats().held_bytes, 0u);
  shard.Send(Contribution(0, 4, 0, 1));
  const auto results = ResultsByStream(shard.Send(Contribution(1, 4, 0, 3)));
  const protocol::ClosingRecord& record = results.at(1).record;
  EXPECT_THAT(Places(record), ElementsAre("0@4", "1@4", "2@1"));
  EXPECT_EQ(record.n, 3u) << "n counts the contributions";
  EXPECT_EQ(record.included[2].checksum, protocol::BundleChecksum(Contribution(2, 1, 0, 8).frames));
  EXPECT_THAT(DecodedFrame(results.at(1).results.at(0), 2), ElementsAre(4, 4));
  EXPECT_EQ(shard->Stats().held_bytes, 0u);
}

// Returns a shard of three ranks, two of which are a quorum, and three fragments. Steps 1, 4 and so
// on exchange bundle 0, steps 2, 5 and so on bundle 1, and the others another shard's bundles.
ShardOptions QuorumShardWithFragments() {
  ShardOptions options = QuorumShard(3, 2, absl::ZeroDuration());
  options.exchange.compression.layout.fragments = options.layout.fragments = 3;
  options.layout.bundles[0][1].fragment = 1;
  for (const uint32_t chunk : {0, 1}) options.layout.chunks[chunk].fragment = 1;
  return options;
}

// Sends the bundle that the step exchanges, and a skip of the other one.
void SendWhatIsDue(ShardUnderTest* shard, uint32_t rank, uint64_t step, float value) {
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    shard->Send((step - 1) % 3 == bundle ? Contribution(rank, step, bundle, value)
                                         : SkipOf(rank, step, bundle));
  }
}

TEST(Quorum, LateWorkJoinsTheNextStepOfItsFragment) {
  ShardUnderTest shard(QuorumShardWithFragments());
  for (uint32_t rank = 0; rank < 2; ++rank) SendWhatIsDue(&shard, rank, 1, 1);
  ASSERT_EQ(shard->open_step(), 2u);
  EXPECT_EQ(shard.Ask(Contribution(2, 1, 0, 7)).outcome, protocol::Outcome::kResult);
  EXPECT_GT(shard->Stats().held_bytes, 0u);
  for (uint64_t step = 2; step <= 3; ++step) {
    for (uint32_t rank = 0; rank < 2; ++rank) SendWhatIsDue(&shard, rank, step, 1);
    const protocol::ExchangeReply result = shard.Ask(SkipOf(0, step, 0));
    EXPECT_EQ(result.record.n, 0u) << "step " << step << " does not exchange the bundle";
  }
  for (uint32_t rank = 0; rank < 2; ++rank) SendWhatIsDue(&shard, rank, 4, 1);
  const protocol::ExchangeReply result = shard.Ask(Contribution(0, 4, 0, 1));
  EXPECT_THAT(Places(result.record), ElementsAre("0@4", "1@4", "2@1"));
  EXPECT_THAT(DecodedFrame(result.results.at(0), 2), ElementsAre(3, 3));
  EXPECT_EQ(shard->Stats().held_bytes, 0u);
}

// The rank's own checkpoint part has the late work, in its residual.
TEST(Quorum, ACheckpointWaitsForNoLateRank) {
  ShardUnderTest shard(QuorumShardWithFragments());
  shard->NameCheckpoint(1);
  for (uint64_t step = 1; step <= 3; ++step) {
    for (uint32_t rank = 0; rank < 2; ++rank) SendWhatIsDue(&shard, rank, step, 1);
    EXPECT_EQ(shard.Ask(SkipOf(0, step, 0)).outcome,
              step == 1 ? protocol::Outcome::kInvalid : protocol::Outcome::kResult);
  }
  EXPECT_EQ(shard->open_step(), 4u);
  EXPECT_TRUE(shard->CheckPartStep(3).ok()) << "the checkpoint after step 3 was taken";
  SendWhatIsDue(&shard, 2, 1, 7);
  for (uint32_t rank = 0; rank < 2; ++rank) SendWhatIsDue(&shard, rank, 4, 1);
  EXPECT_THAT(Places(shard.Ask(Contribution(0, 4, 0, 1)).record), ElementsAre("0@4", "1@4", "2@1"));
}

TEST(Quorum, WorkOfAFragmentThatIsNotDueIsRefused) {
  ShardUnderTest shard(QuorumShardWithFragments());
  const protocol::ExchangeReply refused = shard.Ask(Contribution(0, 1, 1, 1));
  EXPECT_EQ(refused.outcome, protocol::Outcome::kInvalid);
  EXPECT_THAT(refused.message, HasSubstr("frames of fragment 1, which this step does not"));
}

// The values show the order of the additions: in fp32, 1e8 + 1 - 1e8 is 0, but 1e8 - 1e8 + 1 is 1.
TEST(Quorum, SumsInRankThenStepOrder) {
  ShardUnderTest shard(QuorumShard(3, 2, absl::ZeroDuration()));
  shard.Send(Contribution(1, 1, 0, 0));
  shard.Send(Contribution(2, 1, 0, 0));
  // This work is late. In step 2 it must come before the work of the other ranks.
  shard.Send(Contribution(0, 1, 0, 1e8f));
  for (uint32_t rank = 1; rank < 3; ++rank) shard.Send(Contribution(rank, 1, 1, 0));
  ASSERT_EQ(shard->open_step(), 2u);
  shard.Send(Contribution(2, 2, 0, -1e8f));
  const auto results = ResultsByStream(shard.Send(Contribution(0, 2, 0, 1)));
  EXPECT_THAT(Places(results.at(1).record), ElementsAre("0@1", "0@2", "2@2"));
  EXPECT_THAT(DecodedFrame(results.at(1).results.at(0), 2), ElementsAre(0, 0));
}

TEST(Quorum, ARepeatOfLateWorkCountsOnce) {
  ShardUnderTest shard(QuorumShard(3, 2, absl::ZeroDuration()));
  for (uint64_t step = 1; step <= 2; ++step) CloseByTwo(&shard, step, 1);
  EXPECT_EQ(shard.Ask(KeysOf(Contribution(2, 1, 0, 8))).outcome, protocol::Outcome::kNeed);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(shard.Ask(Contribution(2, 1, 0, 8)).outcome, protocol::Outcome::kResult);
    EXPECT_EQ(shard.Ask(KeysOf(Contribution(2, 1, 0, 8))).outcome, protocol::Outcome::kResult);
  }
  EXPECT_THAT(shard.Ask(Contribution(2, 1, 0, 9)).message, HasSubstr("other bytes"));
  CloseByTwo(&shard, 3, 1);
  EXPECT_EQ(shard.Ask(Contribution(2, 1, 0, 8)).outcome, protocol::Outcome::kResult);
  CloseByTwo(&shard, 4, 1);
  EXPECT_EQ(shard.Ask(Contribution(0, 3, 0, 1)).record.n, 3u);
  EXPECT_EQ(shard.Ask(Contribution(0, 4, 0, 1)).record.n, 2u);
  EXPECT_EQ(shard->Stats().late_contributions, 1u);
}

TEST(Quorum, ASkipOfAClosedStepChangesNothing) {
  ShardUnderTest shard(QuorumShard(3, 2, absl::ZeroDuration()));
  for (uint64_t step = 1; step <= 2; ++step) CloseByTwo(&shard, step, 1);
  EXPECT_EQ(shard.Ask(SkipOf(2, 1, 0)).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard.Ask(SkipOf(2, 1, 0)).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard.Ask(Contribution(2, 1, 0, 5)).outcome, protocol::Outcome::kInvalid)
      << "rank 2 has skipped the step";
  CloseByTwo(&shard, 3, 1);
  EXPECT_EQ(shard.Ask(Contribution(0, 3, 0, 1)).record.n, 2u);
  EXPECT_EQ(shard->Stats().late_contributions, 0u);
}

// Bundle 0 of step 2 is closed and bundle 1 is open. Late work for bundle 0 must join step 3, even
// if step 3 already has work of the same rank.
TEST(Quorum, SeveralPiecesOfLateWorkAreInOneStep) {
  ShardUnderTest shard(QuorumShard(3, 2, absl::ZeroDuration()));
  CloseByTwo(&shard, 1, 1);
  for (uint32_t rank = 0; rank < 2; ++rank) shard.Send(Contribution(rank, 2, 0, 1));
  EXPECT_EQ(shard.Ask(Contribution(2, 1, 0, 8)).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard.Ask(Contribution(2, 1, 1, 8)).outcome, protocol::Outcome::kResult);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(shard.Ask(Contribution(2, 2, 0, 9)).outcome, protocol::Outcome::kResult)
        << "a repeat gets the same answer";
  }
  EXPECT_EQ(shard.Ask(Contribution(2, 2, 0, 7)).outcome, protocol::Outcome::kInvalid)
      << "a repeat must have the same bytes";
  for (uint32_t rank = 0; rank < 2; ++rank) shard.Send(Contribution(rank, 2, 1, 1));
  ASSERT_EQ(shard->open_step(), 3u);
  shard.Send(Contribution(2, 3, 0, 0));
  const auto results = ResultsByStream(shard.Send(Contribution(0, 3, 0, 1)));
  EXPECT_THAT(Places(results.at(1).record), ElementsAre("0@3", "2@1", "2@2", "2@3"));
  EXPECT_EQ(results.at(1).record.n, 4u);
  EXPECT_THAT(DecodedFrame(results.at(1).results.at(0), 2), ElementsAre(4.5f, 4.5f));
  EXPECT_EQ(shard->Stats().late_contributions, 3u);
}

// Two ranks are left out of different bundles of step 1, and step 2 needs both ranks. Neither may
// wait for the other.
TEST(Quorum, RanksLeftOutOfDifferentBundlesDoNotWaitForEachOther) {
  ShardUnderTest shard(QuorumShard(4, 3, absl::ZeroDuration()));
  for (const uint32_t rank : {0, 1, 3}) shard.Send(Contribution(rank, 1, 0, 1));
  for (const uint32_t rank : {0, 1, 2}) shard.Send(Contribution(rank, 1, 1, 1));
  ASSERT_EQ(shard->open_step(), 2u);
  EXPECT_EQ(shard.Ask(Contribution(2, 1, 0, 1)).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard.Ask(Contribution(3, 1, 1, 1)).outcome, protocol::Outcome::kResult);
}

// A rank is late in every step. Each time it sends, some steps have already closed. The answer
// tells the rank to skip them and work on the open step. Each piece of its work must be in exactly
// one step.
TEST(Quorum, ARankAlwaysLate) {
  ShardUnderTest shard(QuorumShard(3, 2, absl::ZeroDuration()));
  uint64_t open = 1;
  uint64_t slow = 1;
  std::vector<uint64_t> worked;
  // Number of results that contain work of rank 2, by the step of that work.
  std::map<uint64_t, int> included;
  const auto run_fast = [&](uint64_t steps) {
    for (uint64_t i = 0; i < steps; ++i) {
      const auto results = CloseByTwo(&shard, open++, 1);
      for (const protocol::Included& of : results.at(0).record.included) {
        included[of.origin_step] += of.rank == 2;
      }
    }
  };
  for (int round = 0; round < 10; ++round) {
    run_fast(1 + static_cast<uint64_t>(round) % 4);
    worked.push_back(slow);
    uint64_t behind = 0;
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      const protocol::ExchangeReply answer = shard.Ask(Contribution(2, slow, bundle, 5));
      ASSERT_EQ(answer.outcome, protocol::Outcome::kResult) << slow;
      behind = answer.open_step - slow - 1;
    }
    for (++slow; behind > 0; --behind, ++slow) {
      for (uint32_t bundle = 0; bundle < 2; ++bundle) {
        ASSERT_EQ(shard.Ask(SkipOf(2, slow, bundle)).outcome, protocol::Outcome::kResult) << slow;
      }
    }
    EXPECT_EQ(slow, shard->open_step());
  }
  run_fast(1);
  EXPECT_EQ(shard->Stats().late_contributions, 2 * worked.size());
  for (const auto& [step, times] : included) EXPECT_LE(times, 1) << step;
  for (const uint64_t step : worked) EXPECT_EQ(included[step], 1) << step;
  EXPECT_EQ(shard->Stats().contributions, 3 * (shard->Stats().bundles_closed) - 2)
      << "only rank 2's part of the last step is missing";
}

TEST(Quorum, StepZeroWaitsForAll) {
  ShardOptions options = QuorumShard(3, 2, absl::ZeroDuration());
  options.parameters_agree = false;
  ShardUnderTest shard(options);
  shard.Send(Contribution(0, 0, 0, 1));
  EXPECT_EQ(shard.Ask(SkipOf(1, 0, 0)).outcome, protocol::Outcome::kPending);
  EXPECT_EQ(shard->tick_due(), absl::InfiniteFuture());
  EXPECT_THAT(ResultsByStream(shard->Tick(shard.now() + absl::Seconds(1))), IsEmpty());
}

TEST(Quorum, BuffersWaitForAllInTheStepsThatAverageThem) {
  ShardOptions options = QuorumShard(3, 2, absl::ZeroDuration());
  options.table[1].role = protocol::TensorRole::kBuffer;
  options.layout.bundles[0][0].buffers = true;
  options.exchange.buffer_sync_interval = 2;
  ShardUnderTest shard(options);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    shard.Send(SkipOf(rank, 1, 0));
    shard.Send(Contribution(rank, 1, 1, 1));
  }
  EXPECT_EQ(shard->open_step(), 2u) << "no buffers are due in step 1";
  CloseByTwo(&shard, 2, 4);
  EXPECT_EQ(shard->open_step(), 2u);
  EXPECT_EQ(shard->tick_due(), absl::InfiniteFuture());
  // When the late rank catches up, the buffers of all ranks are averaged.
  EXPECT_EQ(shard.Ask(SkipOf(2, 1, 0)).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard.Ask(Contribution(2, 1, 1, 1)).outcome, protocol::Outcome::kResult);
  const auto results = ResultsByStream(shard.Send(Contribution(2, 2, 0, 1)));
  EXPECT_EQ(results.at(1).record.n, 3u);
  EXPECT_THAT(DecodedFrame(results.at(1).results.at(0), 2), ElementsAre(3, 3));
}

// The log must not grow without bound while a rank sends nothing. Rather than evict a result that
// the rank needs, the shard must hold the step open until the rank catches up.
TEST(Quorum, WaitsForARankThatTheLogWouldNotReachBackTo) {
  ShardOptions options = QuorumShard(3, 2, absl::ZeroDuration());
  options.log.steps = 4;
  ShardUnderTest shard(options);
  for (uint64_t step = 1; step <= 4; ++step) CloseByTwo(&shard, step, 1);
  ASSERT_EQ(shard->open_step(), 5u);
  CloseByTwo(&shard, 5, 1);
  EXPECT_EQ(shard->open_step(), 5u) << "the step waits for rank 2";
  EXPECT_EQ(shard->tick_due(), absl::InfiniteFuture());
  // The log still has every result that the late rank asks for. When the rank has received them,
  // the others continue.
  for (uint64_t step = 1; step <= 4; ++step) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      protocol::ExchangeRequest work =
          step == 1 ? Contribution(2, step, bundle, 1) : SkipOf(2, step, bundle);
      ASSERT_EQ(shard.Ask(std::move(work)).outcome, protocol::Outcome::kResult) << step;
    }
  }
  EXPECT_LE(shard->tick_due(), shard.now());
  shard->Tick(shard.now());
  EXPECT_EQ(shard->open_step(), 6u);
}

TEST(Quorum, TheRateIsThatOfTheStepNotOfLateWork) {
  ShardOptions options = QuorumShard(3, 2, absl::ZeroDuration());
  options.rule =
      job::OptimizerSpec{.name = "sgd", .lr = 1, .location = job::UpdateLocation::kShards};
  options.parameters_agree = false;
  ShardUnderTest shard(options);
  for (uint32_t bundle = 0; bundle < 2; ++bundle) {
    shard.Send(Contribution(0, 0, bundle, 1));
    for (uint32_t rank = 1; rank < 3; ++rank) shard.Send(SkipOf(rank, 0, bundle));
  }
  const auto at_rate = [](protocol::ExchangeRequest exchange, float rate) {
    exchange.rate = rate;
    return exchange;
  };
  for (uint32_t rank = 1; rank < 3; ++rank) {
    for (uint32_t bundle = 0; bundle < 2; ++bundle) {
      shard.Send(at_rate(Contribution(rank, 1, bundle, 0), 0.5f));
    }
  }
  shard.Send(at_rate(Contribution(0, 1, 0, 3), 0.5f));
  shard.Send(at_rate(Contribution(1, 2, 0, 3), 0.25f));
  const auto results = ResultsByStream(shard.Send(at_rate(Contribution(2, 2, 0, 3), 0.25f)));
  EXPECT_THAT(Places(results.at(2).record), ElementsAre("0@1", "1@2", "2@2"));
  EXPECT_EQ(results.at(2).record.rate, 0.25f);
}

TEST(Quorum, GoesWithoutReplay) {
  ShardOptions options = QuorumShard(3, 2);
  options.replay_bytes = 1 << 20;
  EXPECT_THAT(std::string(Shard::Create(options).status().message()),
              HasSubstr("which ranks were included"));
  EXPECT_FALSE(Shard::Create(QuorumShard(3, 4)).ok());
}

}  // namespace
}  // namespace sluice::server
