// SPDX-License-Identifier: Apache-2.0
// Tests the results that a shard keeps for workers that return, its answers while it replays, and
// the limits of repairs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/shard/shard_fixture.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ShardOptions KeepingShard(uint32_t ranks, absl::string_view downlink = "none") {
  ShardOptions options = SmallShard(ranks, downlink);
  options.replay_bytes = 1 << 20;
  return options;
}

// Returns a shard that was restarted in the middle of a job from its checkpoint after step `saved`.
// With a lossless downlink, that checkpoint contains only versions.
ShardOptions ReplayingShard(uint32_t ranks, uint64_t saved) {
  ShardOptions options = KeepingShard(ranks);
  options.replay = true;
  options.first_step = saved + 1;
  return options;
}

ShardOptions AsSecondShard(ShardOptions options) {
  options.shard = 1;
  options.layout.bundles.insert(options.layout.bundles.begin(), std::vector<protocol::Bundle>());
  return options;
}

// Changes the sender to the worker that takes over the rank in generation 2.
protocol::ExchangeRequest OfSuccessor(protocol::ExchangeRequest exchange) {
  exchange.sender.incarnation += 100;
  exchange.sender.generation = 2;
  return exchange;
}

template <typename Effect>
std::vector<Effect> Only(const std::vector<ShardEffect>& effects) {
  std::vector<Effect> only;
  for (const ShardEffect& effect : effects) {
    if (const auto* one = std::get_if<Effect>(&effect)) only.push_back(*one);
  }
  return only;
}

protocol::ExchangeReply AnswerTo(ShardUnderTest* shard, protocol::ExchangeRequest exchange) {
  return *Only<SendReply>(shard->Send(std::move(exchange))).at(0).answer;
}

TEST(ShardRepair, ResultsStayUntilACheckpointReleasesThem) {
  ShardUnderTest shard(KeepingShard(2));
  EXPECT_EQ(shard->results_from(), 1u)
      << "a worker that begins with the first step finds all results";
  for (uint64_t step = 1; step <= 5; ++step) shard.RunStep(step, 1);
  shard.RunStep(6, 1);  // Step 6 acknowledges step 5.
  EXPECT_EQ(shard->Stats().log_results, 12u);
  EXPECT_EQ(shard->results_from(), 1u);
  EXPECT_EQ(AnswerTo(&shard, Contribution(0, 1, 0, 1)).outcome, protocol::Outcome::kResult);
  shard->ReleaseResults(3);
  EXPECT_EQ(shard->Stats().log_results, 6u);
  EXPECT_EQ(shard->results_from(), 4u);
  EXPECT_EQ(shard->Stats().results_from, 4u);
  shard->ReleaseResults(2);
  EXPECT_EQ(shard->results_from(), 4u) << "a late release has no effect";
  EXPECT_EQ(AnswerTo(&shard, Contribution(0, 4, 0, 1)).outcome, protocol::Outcome::kResult);
  EXPECT_THAT(AnswerTo(&shard, Contribution(0, 3, 0, 1)).message, HasSubstr("no longer kept"));
}

TEST(ShardRepair, WhatSomebodyHasNotAcknowledgedIsNotReleased) {
  ShardUnderTest shard(KeepingShard(2));
  for (uint64_t step = 1; step <= 3; ++step) shard.RunStep(step, 1);
  shard->ReleaseResults(3);
  EXPECT_EQ(shard->results_from(), 3u);
  EXPECT_EQ(AnswerTo(&shard, Contribution(1, 3, 1, 2)).outcome, protocol::Outcome::kResult);
  shard.RunStep(4, 1);
  EXPECT_EQ(shard->results_from(), 4u) << "results are released when all ranks have acknowledged";
}

TEST(ShardRepair, WithoutReplayNothingIsKeptForOthers) {
  ShardUnderTest shard(SmallShard(1));
  for (uint64_t step = 1; step <= 3; ++step) shard.RunStep(step, 1);
  EXPECT_EQ(shard->results_from(), 0u);
  EXPECT_EQ(shard->Stats().log_results, 2u);
}

TEST(ShardRepair, AtTheLimitTheOldestStepsGoAndTheNewestTwoStay) {
  ShardUnderTest unlimited(KeepingShard(2));
  for (uint64_t step = 1; step <= 2; ++step) unlimited.RunStep(step, 1);
  const uint64_t per_step = unlimited->Stats().log_bytes / 2;
  EXPECT_GT(per_step, 2 * sizeof(protocol::ExchangeReply)) << "the record takes memory too";

  ShardOptions options = KeepingShard(2);
  options.replay_bytes = 4 * per_step;
  ShardUnderTest shard(options);
  for (uint64_t step = 1; step <= 7; ++step) {
    shard.RunStep(step, 1);
    EXPECT_EQ(shard->results_from(), step <= 4 ? 1 : step - 3);
    EXPECT_LE(shard->Stats().log_bytes, options.replay_bytes);
  }
  EXPECT_EQ(shard->Stats().log_limit, options.replay_bytes);

  options.replay_bytes = 1;
  ShardUnderTest tight(options);
  for (uint64_t step = 1; step <= 7; ++step) tight.RunStep(step, 1);
  EXPECT_EQ(tight->results_from(), 6u);
}

TEST(ShardRepair, ResultsTakeNoMoreMemoryThanTheOthersLeave) {
  ShardOptions options = KeepingShard(2);
  options.window_bytes = 1000;
  // Memory for sums, residuals and windows, plus 3000 bytes.
  options.max_memory = 2 * 4 * 6 + 2 * 1000 + 3000;
  ShardUnderTest shard(options);
  EXPECT_EQ(shard->Stats().log_limit, 3000u);
  for (uint64_t step = 1; step <= 40; ++step) shard.RunStep(step, 1);
  EXPECT_EQ(shard->Stats().highest_closed_step, 40u);
  EXPECT_GT(shard->results_from(), 1u);
  EXPECT_EQ(shard->Stats().refused_busy, 0u) << "training never waits for kept results";
}

// Scripted schedule: the windows of all ranks are full at the barrier, and the log is full too. No
// rank may be blocked.
TEST(ShardRepair, WindowsFullAtTheBarrierAFullLogHoldsUpNobody) {
  ShardOptions options = KeepingShard(2);
  options.window_bytes = 1;
  options.max_memory = 2 * 4 * 6 + 2;  // There is no memory for frames or results.
  ShardUnderTest shard(options);
  EXPECT_EQ(shard->Stats().log_limit, 0u);
  for (uint64_t step = 1; step <= 5; ++step) {
    for (const uint32_t bundle : {0u, 1u}) {
      if (bundle == 0) {
        EXPECT_EQ(AnswerTo(&shard, Contribution(1, step, 1, 2)).outcome, protocol::Outcome::kBusy);
      }
      EXPECT_EQ(AnswerTo(&shard, Contribution(1, step, bundle, 2)).outcome,
                protocol::Outcome::kPending);
      EXPECT_EQ(AnswerTo(&shard, Contribution(0, step, bundle, 2)).outcome,
                protocol::Outcome::kResult);
    }
  }
}

TEST(ShardRepair, WhatShowsThatTheShardIsBehindIsAnsweredNeedAndChangesNothing) {
  ShardUnderTest shard(ReplayingShard(2, 4));
  protocol::ExchangeRequest with_name = Contribution(1, 9, 0, 1);
  with_name.checkpoint_step = 10;
  protocol::ExchangeRequest acknowledges = Contribution(1, 5, 0, 1);
  acknowledges.acked_step = 5;
  // This request acknowledges step 5, which is open on this shard.
  protocol::ExchangeRequest next = Contribution(1, 6, 0, 1);
  const std::vector<protocol::ExchangeRequest> requests = {Contribution(0, 9, 1, 1),
                                                           KeysOf(Contribution(0, 9, 1, 1)),
                                                           with_name,
                                                           acknowledges,
                                                           next,
                                                           KeysOf(Contribution(1, 5, 1, 1)),
                                                           SkipOf(1, 9, 0),
                                                           KeysOf(Contribution(0, 4, 1, 1)),
                                                           Contribution(0, 3, 1, 1)};
  for (int round = 0; round < 2; ++round) {
    for (const protocol::ExchangeRequest& request : requests) {
      const auto effects = shard.Send(request);
      ASSERT_THAT(effects, SizeIs(1));
      const protocol::ExchangeReply answer = *std::get<SendReply>(effects[0]).answer;
      EXPECT_EQ(answer.outcome, protocol::Outcome::kNeed) << request.step;
      EXPECT_EQ(answer.need_from, 5u) << request.step;
      EXPECT_EQ(answer.step, request.step);
    }
  }
  EXPECT_EQ(shard->Stats().contributions, 0u);
  EXPECT_EQ(shard->Stats().held_bytes, 0u);
  shard.RunStep(5, 1);
  EXPECT_EQ(AnswerTo(&shard, Contribution(0, 5, 0, 1)).outcome, protocol::Outcome::kResult)
      << "a premature acknowledgement must be ignored";
  EXPECT_EQ(AnswerTo(&shard, KeysOf(Contribution(0, 9, 1, 1))).need_from, 6u);
}

TEST(ShardRepair, AShardThatLostNothingRefusesWhatIsTooFarAhead) {
  ShardUnderTest shard(KeepingShard(1));
  EXPECT_EQ(AnswerTo(&shard, Contribution(0, 3, 0, 1)).outcome, protocol::Outcome::kInvalid);
  protocol::ExchangeRequest acknowledges = Contribution(0, 1, 0, 1);
  acknowledges.acked_step = 1;
  EXPECT_EQ(AnswerTo(&shard, acknowledges).outcome, protocol::Outcome::kInvalid);
}

// Scripted schedule: the shard crashes after it has sent a result to rank 0 but not to rank 1.
// There is no checkpoint yet, so the next process begins with the first step. It must produce the
// same result again.
TEST(ShardRepair, CrashAfterTheFirstResultWasSent) {
  ShardUnderTest first(KeepingShard(2, "topk:50%/ef"));
  first.RunStep(1, 1);
  first.RunStep(2, 3);
  first.Send(Contribution(0, 3, 0, 2));
  first->StreamClosed(2);
  const auto effects = first.SendOn(0, Contribution(1, 3, 0, 5));
  const auto replies = Only<SendReply>(effects);
  ASSERT_THAT(replies, SizeIs(1));
  ASSERT_EQ(replies[0].stream, 1u) << "only rank 0 gets the result";
  const protocol::ExchangeReply seen = *replies[0].answer;

  ShardOptions options = KeepingShard(2, "topk:50%/ef");
  options.server_incarnation = 6;
  options.replay = true;
  ShardUnderTest second(options);
  EXPECT_EQ(AnswerTo(&second, KeysOf(Contribution(0, 3, 0, 2))).need_from, 1u);
  EXPECT_EQ(AnswerTo(&second, Contribution(1, 3, 0, 5)).need_from, 1u);
  second.RunStep(1, 1);
  second.RunStep(2, 3);
  // The contributions arrive in another order than before.
  EXPECT_EQ(AnswerTo(&second, Contribution(1, 3, 0, 5)).outcome, protocol::Outcome::kPending);
  const protocol::ExchangeReply again = AnswerTo(&second, Contribution(0, 3, 0, 2));
  EXPECT_EQ(again.results, seen.results);
  EXPECT_EQ(again.record.included, seen.record.included);
  EXPECT_EQ(again.record.result_checksum, seen.record.result_checksum);
  EXPECT_EQ(again.version, seen.version);
}

// Scripted schedule: two processes of one shard are alive. The older one must not serve a worker
// that knows the newer one.
TEST(ShardRepair, TwoInstancesOfOneShard) {
  ShardUnderTest older(KeepingShard(1));
  ShardOptions options = ReplayingShard(1, 0);
  options.server_incarnation = 6;
  ShardUnderTest newer(options);
  protocol::ExchangeRequest exchange = Contribution(0, 1, 0, 1);
  exchange.sender.server_incarnation = 6;
  const protocol::ExchangeReply fenced = AnswerTo(&older, exchange);
  EXPECT_EQ(fenced.outcome, protocol::Outcome::kFenced);
  EXPECT_THAT(fenced.message, HasSubstr("was replaced by a newer one (6)"));
  EXPECT_EQ(AnswerTo(&newer, exchange).outcome, protocol::Outcome::kResult);
}

// Returns a shard on which steps 1 to 3 are closed and bundle 0 of step 4 has the contribution of
// rank 1. After that, another worker has taken over rank 1.
ShardUnderTest WithSuccessor(ShardOptions options) {
  ShardUnderTest shard(std::move(options));
  for (uint64_t step = 1; step <= 3; ++step) shard.RunStep(step, 1);
  shard.Send(Contribution(1, 4, 0, 2));
  Check(shard->SetMembership(2, {100, 201}).ok(), "a membership is taken");
  return shard;
}

TEST(ShardRepair, ASuccessorIsAnsweredWhatItsPredecessorWas) {
  ShardUnderTest shard = WithSuccessor(KeepingShard(2));
  EXPECT_EQ(AnswerTo(&shard, Contribution(1, 4, 1, 2)).outcome, protocol::Outcome::kFenced);
  for (uint64_t step = 1; step <= 3; ++step) {
    for (const uint32_t bundle : {0u, 1u}) {
      const protocol::ExchangeRequest sent = OfSuccessor(Contribution(1, step, bundle, 2));
      const protocol::ExchangeReply answer = AnswerTo(&shard, sent);
      EXPECT_EQ(answer.outcome, protocol::Outcome::kResult);
      EXPECT_EQ(answer.record.result_checksum,
                AnswerTo(&shard, Contribution(0, step, bundle, 1)).record.result_checksum);
      EXPECT_EQ(AnswerTo(&shard, KeysOf(sent)).outcome, protocol::Outcome::kResult);
    }
  }
  EXPECT_EQ(AnswerTo(&shard, OfSuccessor(Contribution(1, 4, 0, 2))).outcome,
            protocol::Outcome::kPending)
      << "the predecessor has already sent this contribution";
  EXPECT_EQ(shard->Stats().contributions, 13u);
  EXPECT_EQ(AnswerTo(&shard, Contribution(0, 4, 0, 1)).outcome, protocol::Outcome::kResult);
  EXPECT_EQ(shard->Stats().not_reproducible, 0u);
}

TEST(ShardRepair, WhatASuccessorStillNeedsIsNotReleasedAndDoesNotGoAtTheLimit) {
  ShardUnderTest unlimited(KeepingShard(2));
  unlimited.RunStep(1, 1);
  ShardOptions options = KeepingShard(2);
  options.replay_bytes = 4 * unlimited->Stats().log_bytes;
  ShardUnderTest shard(options);
  for (uint64_t step = 1; step <= 4; ++step) shard.RunStep(step, 1);
  for (const uint32_t bundle : {0u, 1u}) shard.Send(Contribution(1, 5, bundle, 2));
  ASSERT_TRUE(shard->SetMembership(2, {100, 201}).ok());
  // Step 5 is the last step that can close without the successor.
  for (const uint32_t bundle : {0u, 1u}) shard.Send(Contribution(0, 5, bundle, 1));
  EXPECT_EQ(shard->open_step(), 6u);
  EXPECT_EQ(shard->results_from(), 1u);
  for (uint64_t step = 1; step <= 5; ++step) {
    for (const uint32_t bundle : {0u, 1u}) {
      protocol::ExchangeRequest sent = OfSuccessor(Contribution(1, step, bundle, 2));
      EXPECT_EQ(AnswerTo(&shard, sent).outcome, protocol::Outcome::kResult) << step;
    }
  }
  for (const uint32_t bundle : {0u, 1u}) {
    shard.Send(Contribution(0, 6, bundle, 1));
    shard.Send(OfSuccessor(Contribution(1, 6, bundle, 2)));
  }
  EXPECT_EQ(shard->results_from(), 3u) << "the limit holds again";
}

TEST(ShardRepair, WhatASuccessorNeedsAndIsGoneEndsTheRepair) {
  ShardOptions options = KeepingShard(2);
  options.replay_bytes = 1;
  ShardUnderTest shard = WithSuccessor(options);
  EXPECT_EQ(shard->results_from(), 2u);
  const auto effects = shard.Send(OfSuccessor(Contribution(1, 1, 0, 2)));
  EXPECT_EQ(Only<SendReply>(effects).at(0).answer->outcome, protocol::Outcome::kBusy);
  const auto given_up = Only<NotReproducible>(effects);
  ASSERT_THAT(given_up, SizeIs(1));
  EXPECT_EQ(given_up[0].rank, 1u);
  EXPECT_EQ(given_up[0].step, 1u);
  EXPECT_THAT(given_up[0].text, HasSubstr("kept from step 2 on; raise checkpoint.replay_limit"));
  // The successor now acknowledges step 1. A request for that step is then only a late repeat,
  // which causes no rollback.
  ASSERT_EQ(AnswerTo(&shard, OfSuccessor(Contribution(1, 2, 0, 2))).outcome,
            protocol::Outcome::kResult);
  EXPECT_EQ(AnswerTo(&shard, OfSuccessor(Contribution(1, 1, 0, 2))).outcome,
            protocol::Outcome::kInvalid);
}

// Scripted schedule: a worker rejoins with an old residual, so its bytes differ from those of its
// predecessor.
// After a restart, the coordinator may have told only another instance of the shard.
TEST(ShardRepair, ASuccessorWaitsForAShardThatDoesNotKnowItYet) {
  ShardUnderTest shard(KeepingShard(2));
  const protocol::ExchangeReply early = shard.Ask(OfSuccessor(Contribution(1, 1, 0, 1)));
  EXPECT_EQ(early.outcome, protocol::Outcome::kBusy);
  EXPECT_THAT(early.message, HasSubstr("shard 0 is in generation 1 still"));
  ASSERT_TRUE(shard->SetMembership(2, {100, 201}).ok());
  const protocol::ExchangeReply known = shard.Ask(OfSuccessor(Contribution(1, 1, 0, 1)));
  EXPECT_EQ(known.outcome, protocol::Outcome::kPending) << known.message;
  const protocol::ExchangeReply late = shard.Ask(Contribution(1, 1, 0, 1));
  EXPECT_EQ(late.outcome, protocol::Outcome::kFenced);
  EXPECT_THAT(late.message, HasSubstr("held by another worker"));
}

TEST(ShardRepair, RejoinWithAnOldResidual) {
  const std::vector<protocol::ExchangeRequest> others = {
      Contribution(1, 2, 0, 7),          // A closed step.
      KeysOf(Contribution(1, 3, 1, 7)),  // Keys of a closed step.
      SkipOf(1, 2, 1),                   // A step that the predecessor did not skip.
      Contribution(1, 4, 0, 7),          // The open step.
      KeysOf(Contribution(1, 4, 0, 7)),
  };
  ShardUnderTest shard = WithSuccessor(KeepingShard(2));
  for (int round = 0; round < 3; ++round) {
    for (const protocol::ExchangeRequest& other : others) {
      const auto effects = shard.Send(OfSuccessor(other));
      ASSERT_THAT(effects, SizeIs(2)) << other.step;
      EXPECT_EQ(Only<SendReply>(effects).at(0).answer->outcome, protocol::Outcome::kBusy);
      const NotReproducible told = Only<NotReproducible>(effects).at(0);
      EXPECT_EQ(told.rank, 1u);
      EXPECT_EQ(told.step, other.step);
      EXPECT_THAT(told.text, HasSubstr(absl::StrCat("rank 1, step ", other.step)));
      EXPECT_THAT(told.text, HasSubstr("training is not deterministic"));
    }
  }
  EXPECT_EQ(AnswerTo(&shard, OfSuccessor(Contribution(1, 2, 0, 2))).outcome,
            protocol::Outcome::kResult)
      << "the refusals do not count and change nothing";
}

TEST(ShardRepair, ASuccessorsOwnMistakesAreItsOwn) {
  ShardUnderTest shard = WithSuccessor(KeepingShard(2));
  protocol::ExchangeRequest damaged = OfSuccessor(Contribution(1, 2, 0, 2));
  damaged.frames[0].back() ^= 1;
  const auto effects = shard.Send(damaged);
  EXPECT_THAT(Only<NotReproducible>(effects), IsEmpty())
      << "a damaged frame is not a different result";
  EXPECT_EQ(Only<SendReply>(effects).at(0).answer->outcome, protocol::Outcome::kInvalid);
  for (uint64_t step = 4; step <= 6; ++step) {
    for (const uint32_t bundle : {0u, 1u}) {
      shard.Send(Contribution(0, step, bundle, 1));
      if (step < 6) shard.Send(OfSuccessor(Contribution(1, step, bundle, 2)));
    }
  }
  shard.Send(OfSuccessor(Contribution(1, 6, 0, 2)));
  const auto own = shard.Send(OfSuccessor(Contribution(1, 6, 0, 3)));
  EXPECT_THAT(Only<NotReproducible>(own), IsEmpty())
      << "the predecessor never sent this contribution";
  EXPECT_EQ(Only<SendReply>(own).at(0).answer->outcome, protocol::Outcome::kInvalid);
}

TEST(ShardRepair, WhoeverStayedIsHeldToItsBytesAsBefore) {
  ShardUnderTest shard = WithSuccessor(KeepingShard(2));
  const auto effects = shard.Send(Contribution(0, 2, 0, 7));
  EXPECT_THAT(Only<NotReproducible>(effects), IsEmpty());
  EXPECT_EQ(Only<SendReply>(effects).at(0).answer->outcome, protocol::Outcome::kInvalid);
}

TEST(ShardRepair, ASuccessorOfASuccessorBeginsAnewToo) {
  ShardUnderTest shard = WithSuccessor(KeepingShard(2));
  for (uint64_t step = 1; step <= 3; ++step) {
    for (const uint32_t bundle : {0u, 1u}) {
      shard.Send(OfSuccessor(Contribution(1, step, bundle, 2)));
    }
  }
  shard->ReleaseResults(1);
  EXPECT_EQ(shard->results_from(), 2u);
  ASSERT_TRUE(shard->SetMembership(3, {100, 301}).ok());
  EXPECT_FALSE(shard->SetMembership(2, {100, 201}).ok());
  protocol::ExchangeRequest third = Contribution(1, 2, 0, 2);
  third.acked_step = 0;
  EXPECT_EQ(AnswerTo(&shard, OfSuccessor(third)).outcome, protocol::Outcome::kFenced);
  third.sender.incarnation = 301;
  EXPECT_EQ(AnswerTo(&shard, third).outcome, protocol::Outcome::kResult);
  shard->ReleaseResults(3);
  EXPECT_EQ(shard->results_from(), 2u) << "the successor has acknowledged nothing";
}

TEST(ShardRepair, CheckpointsThatWereNamedBeforeAreTakenAndToldAgain) {
  for (const bool is_first : {true, false}) {
    ShardOptions options = ReplayingShard(2, 4);
    if (!is_first) options = AsSecondShard(std::move(options));
    ShardUnderTest shard(options);
    protocol::ExchangeRequest knowing = Contribution(0, 5, 0, 1);
    knowing.checkpoint_step = 6;
    const auto learned = Only<CheckpointNamed>(shard.Send(knowing));
    EXPECT_THAT(learned, SizeIs(is_first ? 1 : 0))
        << "the coordinator may not know the name either";
    EXPECT_THAT(Only<CheckpointNamed>(shard.Send(knowing)), IsEmpty());
    EXPECT_EQ(AnswerTo(&shard, Contribution(1, 5, 0, 2)).checkpoint_step, 6u)
        << "a rank that lags behind learns it from any shard";
    shard.Send(Contribution(0, 5, 1, 1));
    EXPECT_THAT(Only<WriteSnapshot>(shard.Send(Contribution(1, 5, 1, 1))), IsEmpty());
    for (const uint32_t bundle : {0u, 1u}) shard.Send(Contribution(0, 6, bundle, 1));
    shard.Send(Contribution(1, 6, 0, 1));
    const auto taken = Only<WriteSnapshot>(shard.Send(Contribution(1, 6, 1, 1)));
    ASSERT_THAT(taken, SizeIs(1));
    EXPECT_EQ(taken[0].snapshot->step, 6u);
    EXPECT_EQ(AnswerTo(&shard, Contribution(0, 7, 0, 1)).checkpoint_step, 0u);
  }
}

TEST(ShardRepair, TwoNamesFromBeforeAndAfterALossDoNotStandInEachOthersWay) {
  ShardUnderTest shard(AsSecondShard(KeepingShard(2)));
  for (const uint64_t name : {3u, 2u, 3u}) {
    protocol::ExchangeRequest knowing = Contribution(name == 2 ? 1 : 0, 1, 0, 1);
    knowing.checkpoint_step = name;
    EXPECT_NE(AnswerTo(&shard, knowing).outcome, protocol::Outcome::kInvalid);
  }
  protocol::ExchangeRequest impossible = Contribution(0, 1, 1, 1);
  impossible.checkpoint_step = 4;
  EXPECT_THAT(AnswerTo(&shard, impossible).message, HasSubstr("more than 2 steps ahead"));
  std::vector<uint64_t> steps;
  for (uint64_t step = 1; step <= 4; ++step) {
    for (const uint32_t bundle : {0u, 1u}) {
      for (const uint32_t rank : {0u, 1u}) {
        if (step == 1 && bundle == 0) continue;
        for (const auto& taken :
             Only<WriteSnapshot>(shard.Send(Contribution(rank, step, bundle, 1)))) {
          steps.push_back(taken.snapshot->step);
        }
      }
    }
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(2, 3));
}

// A checkpoint is useless if workers learn of it in its step or later. A shard that is behind must
// therefore not name a checkpoint before it has caught up with the workers.
TEST(ShardRepair, AShardThatIsBehindNamesNothingBeforeItIsWhereTheWorkersAre) {
  ShardUnderTest shard(ReplayingShard(2, 4));
  EXPECT_EQ(AnswerTo(&shard, Contribution(0, 8, 0, 1)).outcome, protocol::Outcome::kNeed);
  shard->NameCheckpoint(0);
  for (uint64_t step = 5; step <= 7; ++step) {
    for (const uint32_t bundle : {0u, 1u}) {
      for (const uint32_t rank : {0u, 1u}) {
        const auto effects = shard.Send(Contribution(rank, step, bundle, 1));
        EXPECT_THAT(Only<CheckpointNamed>(effects), IsEmpty()) << step;
        EXPECT_EQ(Only<SendReply>(effects).at(0).answer->checkpoint_step, 0u) << step;
      }
    }
  }
  shard.Send(Contribution(0, 8, 0, 1));
  const auto effects = shard.Send(Contribution(1, 8, 0, 1));
  ASSERT_THAT(Only<CheckpointNamed>(effects), SizeIs(1));
  EXPECT_EQ(Only<CheckpointNamed>(effects)[0].step, 10u);
  EXPECT_EQ(Only<SendReply>(effects).at(0).answer->checkpoint_step, 10u);
}

TEST(ShardRepair, WhoAsksForACheckpointThatIsDueAlreadyIsToldAgain) {
  ShardUnderTest shard(ReplayingShard(1, 4));
  protocol::ExchangeRequest knowing = Contribution(0, 5, 0, 1);
  knowing.checkpoint_step = 7;
  EXPECT_THAT(Only<CheckpointNamed>(shard.Send(knowing)), SizeIs(1));
  EXPECT_EQ(shard->NameCheckpoint(0), 7u);
  const auto told = Only<CheckpointNamed>(shard.Send(Contribution(0, 5, 1, 1)));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].step, 7u);
  EXPECT_THAT(Only<CheckpointNamed>(shard.Send(Contribution(0, 6, 0, 1))), IsEmpty());
}

TEST(ShardRepair, TheParameterAgreementIsNotGoneThroughAgain) {
  ShardOptions options = ReplayingShard(1, 0);
  options.parameters_agree = false;
  EXPECT_THAT(std::string(Shard::Create(options).status().message()),
              HasSubstr("cannot replay the parameter agreement"));
}

}  // namespace
}  // namespace sluice::server
