// How the coordinator brings lost processes back in the term that runs, and when it rolls back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/checkpoint_fixture.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

CoordinatorOptions WithRepair(CoordinatorOptions options) {
  options = WithCheckpoints(std::move(options));
  options.replay_limit = 1 << 20;
  return options;
}

// Two ranks and two shards, of which all is kept unless a test says otherwise.
class RepairTest : public RollbackTest {
 protected:
  RepairTest() : RollbackTest(WithRepair(ExampleOptions())) {}
  explicit RepairTest(CoordinatorOptions options) : RollbackTest(std::move(options)) {}

  WorkerHeartbeat BeatOfHolder(JoinToken token, uint64_t step = 0, uint64_t replay_from = 1) {
    const JoinGrant& grant = *answers_.at(token);
    WorkerHeartbeat beat;
    beat.sender = {.job_uid = grant.job_uid,
                   .term = grant.term,
                   .rank = grant.rank,
                   .incarnation = grant.incarnation,
                   .generation = grant.generation};
    beat.progress.step = step;
    beat.replay_from = replay_from;
    return beat;
  }
  void Health(ControlStreamId stream, uint64_t closed, uint64_t results_from = 1) {
    coordinator_.ShardHealth(stream,
                             {.highest_closed_step = closed,
                              .highest_open_step = closed + 1,
                              .results_from = results_from},
                             now_);
  }
  // With word of those holders and shards each second.
  void PassWith(const std::vector<JoinToken>& holders, const std::vector<ControlStreamId>& shards,
                absl::Duration time, uint64_t step = 0) {
    for (absl::Duration done; done < time; done += absl::Seconds(1)) {
      Tick(absl::Seconds(1));
      for (const JoinToken holder : holders) {
        if (coordinator_.phase() == JobPhase::kRunning) {
          EXPECT_TRUE(Beat(BeatOfHolder(holder, step)).ok());
        }
      }
      for (const ControlStreamId shard : shards) Health(shard, step);
    }
  }
  void AttachRunning(ControlStreamId stream, uint32_t shard, uint32_t term,
                     uint64_t incarnation = 50) {
    ShardArrival arrival = ArrivalOf(shard, incarnation);
    arrival.running = true;
    arrival.job_uid = 77;
    arrival.term = term;
    Attach(stream, arrival);
  }
  void AcknowledgeStart(ControlStreamId stream) {
    ASSERT_NE(NewestOf<StartShard>(stream), nullptr);
    Acknowledge(stream, NewestOf<StartShard>(stream)->sequence);
  }
  void AcknowledgeMembers(ControlStreamId stream) {
    ASSERT_NE(NewestOf<SetMembers>(stream), nullptr);
    Acknowledge(stream, NewestOf<SetMembers>(stream)->sequence);
  }
  const StartShard* StartOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<StartShard>(stream);
    return command == nullptr ? nullptr : &std::get<StartShard>(command->command);
  }
  const SetMembers* MembersOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<SetMembers>(stream);
    return command == nullptr ? nullptr : &std::get<SetMembers>(command->command);
  }
  const ReleaseResults* ReleaseOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<ReleaseResults>(stream);
    return command == nullptr ? nullptr : &std::get<ReleaseResults>(command->command);
  }
  const NameCheckpoint* NameOf(ControlStreamId stream) const {
    const CommandShard* const command = NewestOf<NameCheckpoint>(stream);
    return command == nullptr ? nullptr : &std::get<NameCheckpoint>(command->command);
  }
  JobStatus Now() const { return coordinator_.Status(now_); }
};

TEST_F(RepairTest, TheTermAndItsMembersAreOnDiskBeforeTheyAreAnnounced) {
  StartJob();  // The fixture checks the order.
  ASSERT_EQ(records_.size(), 2u);
  EXPECT_EQ(records_[0].generation, 0u);
  const RunRecord& record = records_[1];
  EXPECT_EQ(record.generation, 1u);
  EXPECT_EQ(record.term, 0u);
  EXPECT_EQ(record.restore_step, 0u);
  EXPECT_TRUE(record.parameters_agree);
  EXPECT_EQ(record.table, JoinOf(0).table);
  ASSERT_EQ(record.members.size(), 2u);
  EXPECT_EQ(record.members[1].nonce, 1001u);
  EXPECT_EQ(record.members[1].incarnation, answers_.at(2)->incarnation);
  EXPECT_EQ(record.members[1].host, "a");
  EXPECT_EQ(record.members[1].pid, 121u);
  EXPECT_EQ(record.members[1].parameters_sha256, "same");
}

TEST_F(RepairTest, ARestartedShardTakesUpItsStepsInTheSameTerm) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  ForgetCommands();
  Attach(13, ArrivalOf(1, /*incarnation=*/60));
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_EQ(refusals_.at(12).code(), absl::StatusCode::kAborted) << "what is left of the old one";
  ASSERT_NE(StartOf(13), nullptr);
  EXPECT_EQ(StartOf(13)->term, 0u);
  EXPECT_EQ(StartOf(13)->first_step, 101u);
  EXPECT_EQ(StartOf(13)->restore_step, 100u);
  EXPECT_TRUE(StartOf(13)->replay);
  EXPECT_TRUE(StartOf(13)->parameters_agree);
  EXPECT_EQ(StartOf(13)->generation, 1u);
  EXPECT_THAT(StartOf(13)->incarnations,
              ElementsAre(answers_.at(1)->incarnation, answers_.at(2)->incarnation));
  EXPECT_EQ(NewestOf<SuspendShard>(11), nullptr) << "the others just wait";
  EXPECT_EQ(Now().repairs, 1u);
  EXPECT_EQ(Now().last_repair,
            "shard 1 (h:7071) was started again; it takes up step 101 again from what the workers "
            "kept (repair 1); nothing is lost");
  EXPECT_THAT(notices_, Contains(Now().last_repair));
  EXPECT_EQ(Now().rollbacks, 0u);
  AcknowledgeStart(13);
  EXPECT_EQ(*&Beat(BeatOfHolder(1))->term, 0u);
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kReplay) << "the next loss is repaired as well";
}

TEST_F(RepairTest, AShardThatDiesWhileItIsBroughtBackIsBroughtBackAgain) {
  StartJob();
  CompleteCheckpoint(100);
  Attach(13, ArrivalOf(1, 60));
  Attach(14, ArrivalOf(1, 70));
  ASSERT_NE(StartOf(14), nullptr);
  EXPECT_TRUE(StartOf(14)->replay);
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_EQ(Now().repairs, 2u);
  coordinator_.ShardDetached(14);
  Attach(15, ArrivalOf(1, 70));
  ASSERT_NE(StartOf(15), nullptr) << "it may not have heard it";
  EXPECT_EQ(StartOf(15)->restore_step, 100u);
  EXPECT_TRUE(StartOf(15)->replay);
  EXPECT_EQ(Now().repairs, 2u) << "the same process";
}

TEST_F(RepairTest, WithoutACheckpointEverythingIsRepeatedFromTheStart) {
  StartJob();
  Attach(13, ArrivalOf(1, 60));
  ASSERT_NE(StartOf(13), nullptr);
  EXPECT_EQ(StartOf(13)->first_step, 1u);
  EXPECT_EQ(StartOf(13)->restore_step, 0u);
  EXPECT_TRUE(StartOf(13)->replay);
}

TEST_F(RepairTest, ParametersThatWereAgreedOnInStepZeroCannotBeRepeated) {
  WorkerJoin different = JoinOf(1);
  different.parameters_sha256 = "other";
  Join(1, JoinOf(0));
  Join(2, different);
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  AcknowledgeAll();
  EXPECT_FALSE(records_.back().parameters_agree);
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kRollback);
  EXPECT_THAT(Now().recovery_reason, HasSubstr("no checkpoint yet"));
  Tick(absl::Milliseconds(100));
  EXPECT_THAT(warnings_, Contains(HasSubstr("ranks began with different parameters")));
  CompleteCheckpoint(100);
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kReplay);
  Attach(13, ArrivalOf(1, 60));
  EXPECT_TRUE(StartOf(13)->parameters_agree) << "it comes from the checkpoint";
}

TEST_F(RepairTest, WhatTheWorkersDoNotKeepTakesARollback) {
  StartJob();
  CompleteCheckpoint(100);
  ASSERT_TRUE(Beat(BeatOfHolder(1, 140, 101)).ok());
  ASSERT_TRUE(Beat(BeatOfHolder(2, 140, 103)).ok());
  Attach(13, ArrivalOf(1, 60));
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRecovering);
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("shard 1 (h:7071) was started again, and rank 1 (host a, pid 121) "
                              "keeps only what came from step 103 on"),
                    HasSubstr("step 101 would be needed"), HasSubstr("replay_limit is 1048576"),
                    HasSubstr("40 steps are lost")));
  EXPECT_EQ(records_.back().generation, 0u);
  EXPECT_THAT(records_.back().members, IsEmpty());
  AcknowledgeAll();
  ComeAgain();
  EXPECT_FALSE(StartOf(13)->replay);
  EXPECT_EQ(StartOf(13)->generation, 1u);
  EXPECT_EQ(records_.back().generation, 1u);
  EXPECT_EQ(records_.back().restore_step, 100u);
}

TEST_F(RepairTest, TheClassFallsAtALimitAndRisesWithTheNextCheckpoint) {
  StartJob();
  Tick(absl::Milliseconds(100));
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kReplay);
  EXPECT_EQ(Now().recovery_reason, "");
  EXPECT_THAT(warnings_, IsEmpty());
  ASSERT_TRUE(Beat(BeatOfHolder(1, 40, 7)).ok());
  Tick(absl::Milliseconds(100));
  Tick(absl::Milliseconds(100));
  ASSERT_EQ(warnings_.size(), 1u) << "said once";
  EXPECT_THAT(warnings_[0], HasSubstr("recovery class rollback): rank 0 (host a, pid 120) keeps "
                                      "only what came from step 7 on of what it sent"));
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kRollback);
  CompleteCheckpoint(100);
  Tick(absl::Milliseconds(100));
  EXPECT_THAT(notices_, Contains(HasSubstr("recovery class replay")));
  Health(12, 150, 120);
  Tick(absl::Milliseconds(100));
  EXPECT_THAT(warnings_.back(),
              HasSubstr("shard 1 (h:7071) keeps only what came from step 120 on of its results"));
  Health(12, 150, 0);
  EXPECT_THAT(Now().recovery_reason, HasSubstr("keeps nothing of its results"));
}

TEST_F(RepairTest, AShardThatIsSilentIsAwaited) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11}, absl::Seconds(11), 140);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
  EXPECT_EQ(refusals_.at(12).code(), absl::StatusCode::kAborted) << "it is not here";
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0],
            "shard 1 (h:7071) was not heard of for 10s (server.lease); the others wait up to 10m "
            "(server.wait_limit) for it to come back");
  EXPECT_TRUE(Now().shards[1].lost);
  EXPECT_FALSE(Now().shards[0].lost);
  ForgetCommands();
  AttachRunning(14, 1, 0);  // It only hung.
  EXPECT_EQ(StartOf(14), nullptr);
  EXPECT_EQ(ReleaseOf(14)->durable_step, 100u) << "it may not have heard it";
  EXPECT_FALSE(Now().shards[1].lost);
  EXPECT_THAT(notices_, Contains("shard 1 (h:7071) is back"));
  EXPECT_EQ(Now().repairs, 0u);
}

TEST_F(RepairTest, WhoIsLostIsAwaitedUpToTheWaitLimit) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1}, {11}, absl::Minutes(9), 140);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("shard 1 (h:7071) and rank 1 (host a, pid 121) was "
                                               "not heard of for 10s")));
  EXPECT_TRUE(Now().members[1].lost);
  PassWith({1}, {11}, absl::Minutes(1) + absl::Seconds(1), 140);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFailed);
  EXPECT_EQ(coordinator_.failure(),
            "waited 10m: shard 1 (h:7071) and rank 1 (host a, pid 121) did not come back; start "
            "the job again with --resume, or wait longer with server.wait_limit");
  EXPECT_FALSE(records_.back().finished);
}

TEST_F(RepairTest, AWorkerThatWasSilentIsSimplyBack) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1}, {11, 12}, absl::Seconds(12), 140);
  EXPECT_TRUE(Now().members[1].lost);
  EXPECT_EQ(Beat(BeatOfHolder(2, 141))->term, 0u);
  EXPECT_FALSE(Now().members[1].lost);
  EXPECT_THAT(notices_, Contains("rank 1 (host a, pid 121) is back"));
  EXPECT_EQ(Now().repairs, 0u);
}

TEST_F(RepairTest, ALossThatCannotBeRepairedIsNotAwaited) {
  StartJob();
  CompleteCheckpoint(100);
  for (int i = 0; i < 11; ++i) {
    Tick(absl::Seconds(1));
    if (coordinator_.term() > 0) break;
    EXPECT_TRUE(Beat(BeatOfHolder(1, 140)).ok());
    Health(11, 140, 120);
    Health(12, 140, 1);
  }
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("rank 1 (host a, pid 121) was not heard of for 10s"),
                    HasSubstr("shard 0 (h:7070) keeps only what came from step "
                              "120 on of its results")));
}

TEST_F(RepairTest, ASuccessorGoesThroughTheStepsAgain) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  const uint64_t before = answers_.at(2)->incarnation;
  WorkerJoin join = JoinOf(1, 9999);
  join.host = "b";
  join.pid = 9;
  join.parameters_sha256 = "of a new process";
  ForgetCommands();
  Join(7, join);
  PassWith({1}, {11, 12}, absl::Seconds(2), 140);
  EXPECT_EQ(MembersOf(11), nullptr) << "its holder may be alive";
  PassWith({1}, {11, 12}, absl::Seconds(1), 140);
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
  EXPECT_EQ(records_.back().generation, 2u);
  EXPECT_EQ(records_.back().members[1].nonce, 9999u);
  ASSERT_NE(MembersOf(11), nullptr);
  ASSERT_NE(MembersOf(12), nullptr);
  EXPECT_EQ(MembersOf(12)->generation, 2u);
  EXPECT_EQ(MembersOf(12)->incarnations[0], answers_.at(1)->incarnation);
  EXPECT_NE(MembersOf(12)->incarnations[1], before);
  EXPECT_FALSE(answers_.contains(7));
  AcknowledgeMembers(11);
  EXPECT_FALSE(answers_.contains(7)) << "shard 1 does not know it yet";
  AcknowledgeMembers(12);
  ASSERT_TRUE(answers_.at(7).ok()) << answers_.at(7).status();
  const JoinGrant& grant = *answers_.at(7);
  EXPECT_EQ(grant.term, 0u);
  EXPECT_EQ(grant.generation, 2u);
  EXPECT_EQ(grant.restore_step, 100u);
  EXPECT_EQ(grant.first_step, 101u);
  EXPECT_TRUE(grant.parameters_agree);
  EXPECT_EQ(grant.incarnation, MembersOf(12)->incarnations[1]);
  EXPECT_EQ(Now().last_repair,
            "rank 1 (host a, pid 121) was replaced by b pid 9, which goes through the steps after "
            "100 again (repair 1); nothing is lost");
  EXPECT_EQ(Beat(BeatOfHolder(2)).status().code(), absl::StatusCode::kFailedPrecondition)
      << "the holder before is fenced";
  EXPECT_TRUE(Beat(BeatOfHolder(7, 101, 101)).ok());
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kReplay);
}

TEST_F(RepairTest, RetryAcrossAGenerationChange) {
  StartJob();
  CompleteCheckpoint(100);
  const WorkerHeartbeat old = BeatOfHolder(1, 140);
  Join(7, JoinOf(1, 9999));
  PassWith({1}, {11, 12}, absl::Seconds(3), 140);
  const JobState state = *Beat(old);
  EXPECT_EQ(state.generation, 2u);
  EXPECT_EQ(state.term, 0u) << "the generation does not concern who stays";
  Join(8, JoinOf(1, 9999));  // The newcomer's call broke; it tries again.
  EXPECT_EQ(answers_.at(7).status().code(), absl::StatusCode::kAborted);
  AcknowledgeMembers(11);
  AcknowledgeMembers(12);
  ASSERT_TRUE(answers_.at(8).ok());
  Join(9, JoinOf(1, 9999));  // And again: the answer was lost.
  ASSERT_TRUE(answers_.at(9).ok());
  EXPECT_EQ(answers_.at(9)->incarnation, answers_.at(8)->incarnation);
  EXPECT_EQ(answers_.at(9)->first_step, 101u);
  EXPECT_EQ(Now().repairs, 1u) << "one member";
}

TEST_F(RepairTest, ASuccessorIsNotReplacedWhileItWaits) {
  StartJob();
  CompleteCheckpoint(100);
  Join(7, JoinOf(1, 9999));
  PassWith({1}, {11, 12}, absl::Seconds(3), 140);
  Join(8, JoinOf(1, 8888));
  PassWith({1}, {11, 12}, absl::Seconds(20), 140);
  EXPECT_EQ(records_.back().members[1].nonce, 9999u);
  EXPECT_FALSE(Now().members[1].lost) << "its call is open";
  AcknowledgeMembers(11);
  AcknowledgeMembers(12);
  EXPECT_TRUE(answers_.at(7).ok());
  EXPECT_TRUE(Beat(BeatOfHolder(7)).ok());
  EXPECT_EQ(answers_.at(8).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(RepairTest, WithoutACheckpointASuccessorMustBeginAsItsPredecessorDid) {
  StartJob();
  Join(7, JoinOf(1, 9999));
  PassWith({1}, {11, 12}, absl::Seconds(3), 40);
  AcknowledgeMembers(11);
  AcknowledgeMembers(12);
  EXPECT_EQ(answers_.at(7)->first_step, 1u);
  EXPECT_TRUE(answers_.at(7)->parameters_agree);
  WorkerJoin other = JoinOf(1, 8888);
  other.parameters_sha256 = "other";
  Join(8, other);
  PassWith({1}, {11, 12}, absl::Seconds(4), 40);
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(), HasSubstr("it begins with other parameters than the one before"));
}

TEST_F(RepairTest, ASuccessorWhoseResultsAreGoneTakesARollback) {
  StartJob();
  CompleteCheckpoint(100);
  Join(7, JoinOf(1, 9999));
  for (int i = 0; i < 4 && coordinator_.term() == 0; ++i) {
    Tick(absl::Seconds(1));
    if (coordinator_.term() > 0) break;
    EXPECT_TRUE(Beat(BeatOfHolder(1, 140)).ok());
    Health(11, 140, 1);
    Health(12, 140, 102);
  }
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("rank 1 (host a, pid 121) was replaced by a pid 121, and shard 1 "
                              "(h:7071) keeps only what came from step 102"),
                    HasSubstr("40 steps are lost")));
}

TEST_F(RepairTest, AllWorkersLostTakeARollback) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  Join(7, JoinOf(0, 9998));
  Join(8, JoinOf(1, 9999));
  PassWith({}, {11, 12}, absl::Seconds(3), 140);
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(), AllOf(HasSubstr("no worker of term 0 is left"),
                                      HasSubstr("from step 140 to step 100: 40 steps are lost")));
  AcknowledgeAll();
  EXPECT_EQ(answers_.at(7)->term, 1u);
  EXPECT_EQ(answers_.at(8)->restore_step, 100u);
}

// It may be the coordinator that was cut off.
TEST_F(RepairTest, AllWorkersSilentForALeaseAreAwaited) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({}, {11, 12}, absl::Seconds(11), 140);
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_THAT(warnings_.back(), HasSubstr("the others wait up to"));
  PassWith({1, 2}, {11, 12}, absl::Seconds(20), 140);
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
}

TEST_F(RepairTest, ASuccessorAmongSilentWorkersWaitsForThemALease) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({}, {11, 12}, absl::Seconds(11), 140);
  Join(7, JoinOf(0, 9998));
  PassWith({}, {11, 12}, absl::Seconds(8), 140);
  EXPECT_EQ(coordinator_.term(), 0u) << "rank 1 may be heard of again";
  PassWith({}, {11, 12}, absl::Seconds(4), 140);
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(), HasSubstr("no worker of term 0 is left"));
}

TEST_F(RepairTest, WorkerAndShardKilledTogether) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  coordinator_.ShardDetached(12);
  Join(7, JoinOf(1, 9999));
  ForgetCommands();
  PassWith({1}, {11}, absl::Seconds(3), 140);
  EXPECT_EQ(coordinator_.term(), 0u);
  AcknowledgeMembers(11);
  EXPECT_FALSE(answers_.contains(7)) << "shard 1 is not there to know it";
  Attach(13, ArrivalOf(1, 60));
  ASSERT_NE(StartOf(13), nullptr);
  EXPECT_EQ(StartOf(13)->generation, 2u);
  EXPECT_EQ(StartOf(13)->incarnations[1], MembersOf(11)->incarnations[1]);
  AcknowledgeStart(13);
  EXPECT_EQ(MembersOf(13), nullptr) << "its start said so";
  ASSERT_TRUE(answers_.at(7).ok());
  EXPECT_EQ(answers_.at(7)->shards[1].server_incarnation, 60u);
  EXPECT_EQ(Now().repairs, 2u);
  EXPECT_EQ(coordinator_.term(), 0u);
}

TEST_F(RepairTest, AShardThatBeganBeforeTheNewGenerationIsToldOfIt) {
  StartJob();
  CompleteCheckpoint(100);
  Attach(13, ArrivalOf(1, 60));
  Join(7, JoinOf(1, 9999));
  PassWith({1}, {11, 13}, absl::Seconds(3), 140);
  EXPECT_EQ(MembersOf(13), nullptr) << "it has not begun";
  AcknowledgeMembers(11);
  AcknowledgeStart(13);
  EXPECT_FALSE(answers_.contains(7)) << "that start was of generation 1";
  ASSERT_NE(MembersOf(13), nullptr);
  EXPECT_EQ(MembersOf(13)->generation, 2u);
  // Lost with the stream: told again.
  coordinator_.ShardDetached(13);
  AttachRunning(14, 1, 0, 60);
  ASSERT_NE(MembersOf(14), nullptr);
  AcknowledgeMembers(14);
  EXPECT_TRUE(answers_.at(7).ok());
}

TEST_F(RepairTest, TwoInstancesOfOneShard) {
  StartJob();
  CompleteCheckpoint(100);
  Attach(13, ArrivalOf(1, 60));
  AcknowledgeStart(13);
  AttachRunning(14, 1, 0, 50);
  EXPECT_EQ(refusals_.at(14).code(), absl::StatusCode::kFailedPrecondition);
  ShardPart(12, PartOf(ShardPartName(1, 0), 200));
  EXPECT_EQ(Now().repairs, 1u);
  EXPECT_EQ(Now().shards[1].attached, true);
}

TEST_F(RepairTest, Shard0PausedBeyondTheLease) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  Join(7, JoinOf(1, 9999));
  Tick(absl::Seconds(60));
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_FALSE(Now().members[0].lost);
  EXPECT_FALSE(Now().shards[1].lost);
  EXPECT_EQ(records_.back().generation, 1u) << "nobody was replaced for our silence";
  PassWith({1, 2}, {11, 12}, absl::Seconds(3), 140);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(RepairTest, ACheckpointDoesNotPassWhoIsBeingBroughtBack) {
  StartJob();
  CompleteCheckpoint(100);
  // All but rank 0 have theirs of 200 when rank 1 and shard 1 die.
  ShardPart(11, PartOf(ShardPartName(0, 0), 200));
  ShardPart(12, PartOf(ShardPartName(1, 0), 200));
  EXPECT_TRUE(WorkerPart(1, PartOf(WorkerPartName(1, 0), 200)).ok());
  Attach(13, ArrivalOf(1, 60));
  Join(7, JoinOf(1, 9999));
  PassWith({1}, {11, 13}, absl::Seconds(3), 200);
  AcknowledgeStart(13);
  AcknowledgeMembers(11);
  AcknowledgeMembers(13);
  ASSERT_TRUE(answers_.at(7).ok());
  EXPECT_TRUE(WorkerPart(0, PartOf(WorkerPartName(0, 0), 200)).ok());
  EXPECT_EQ(manifests_.size(), 1u) << "both go on from 100 and need what came after it";
  CheckpointPart again = PartOf(WorkerPartName(1, 0), 200);
  again.checksum = 5;
  EXPECT_TRUE(coordinator_.WorkerPart(BeatOfHolder(7).sender, again, now_, &effects_).ok());
  Collect();
  EXPECT_EQ(manifests_.size(), 1u);
  ShardPart(13, PartOf(ShardPartName(1, 0), 200));
  ASSERT_EQ(manifests_.size(), 2u);
  EXPECT_EQ(manifests_[1].parts.back().checksum, 5u) << "what lies on disk now";
}

TEST_F(RepairTest, RepairWaitsForTheCheckpointThatIsBeingWritten) {
  StartJob();
  CompleteCheckpoint(100);
  GiveAllParts(200);
  Attach(13, ArrivalOf(1, 60));
  EXPECT_EQ(StartOf(13), nullptr);
  Join(7, JoinOf(1, 9999));
  PassWith({1}, {11, 13}, absl::Seconds(4), 210);
  EXPECT_EQ(records_.back().generation, 1u);
  Written(200);
  ASSERT_NE(StartOf(13), nullptr);
  EXPECT_EQ(StartOf(13)->restore_step, 200u);
  Tick(absl::Milliseconds(100));
  EXPECT_EQ(records_.back().generation, 2u);
}

TEST_F(RepairTest, ResultsAreReleasedWhenACheckpointIsComplete) {
  StartJob();
  EXPECT_EQ(Beat(BeatOfHolder(1))->durable_step, 0u);
  EXPECT_EQ(ReleaseOf(11), nullptr);
  GiveAllParts(100);
  EXPECT_EQ(ReleaseOf(11), nullptr) << "not durable yet";
  EXPECT_EQ(Beat(BeatOfHolder(1))->durable_step, 0u);
  Written(100);
  EXPECT_EQ(ReleaseOf(11)->durable_step, 100u);
  EXPECT_EQ(ReleaseOf(12)->durable_step, 100u);
  EXPECT_EQ(Beat(BeatOfHolder(1))->durable_step, 100u);
}

TEST_F(RepairTest, PartsThatAreRepeatedAreTakenOnce) {
  StartJob();
  ShardPart(11, PartOf(ShardPartName(0, 0), 100));
  ShardPart(12, PartOf(ShardPartName(1, 0), 100));
  for (int i = 0; i < 3; ++i) {
    for (const uint32_t rank : {0, 1}) {
      WorkerHeartbeat beat = BeatOfHolder(1 + rank);
      beat.parts.push_back(PartOf(WorkerPartName(rank, 0), 100));
      EXPECT_TRUE(Beat(beat).ok());
    }
  }
  EXPECT_EQ(manifests_.size(), 1u);
  Written(100);
  WorkerHeartbeat beat = BeatOfHolder(1);
  beat.parts.push_back(PartOf(WorkerPartName(0, 0), 100));
  beat.parts.push_back(PartOf(WorkerPartName(1, 0), 200));  // Not its own.
  EXPECT_TRUE(Beat(beat).ok());
  GiveAllParts(200);
  EXPECT_EQ(manifests_.size(), 2u);
}

TEST_F(RepairTest, ADamagedCheckpointThatARepairNeedsMakesWayForTheOneBefore) {
  StartJob();
  CompleteCheckpoint(100);
  CompleteCheckpoint(200);
  Attach(13, ArrivalOf(1, 60));
  CheckpointPart damaged = PartOf(ShardPartName(1, 0), 200);
  damaged.error = "section 2: the checksum differs";
  ShardPart(13, damaged);
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(), HasSubstr("the checkpoint after step 200 cannot be used"));
  AcknowledgeAll();
  ComeAgain();
  EXPECT_EQ(answers_.at(1)->restore_step, 100u);
  EXPECT_FALSE(StartOf(13)->replay);
}

TEST_F(RepairTest, TrainingThatComesOutDifferentlyTakesARollback) {
  StartJob();
  CompleteCheckpoint(100);
  coordinator_.ShardNotReproducible(99, 1, "of nobody", now_, &effects_);
  coordinator_.ShardNotReproducible(12, 7, "of a rank that is not", now_, &effects_);
  EXPECT_EQ(coordinator_.term(), 0u);
  coordinator_.ShardNotReproducible(12, 1, "rank 1 sent other bytes for step 130", now_, &effects_);
  Collect();
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(), HasSubstr("rank 1 sent other bytes for step 130"));
}

TEST_F(RepairTest, HashesThatAreToldAgainMustBeTheSame) {
  StartJob();
  const auto tell = [&](JoinToken holder, uint64_t step, const std::string& sha256) {
    WorkerHeartbeat beat = BeatOfHolder(holder);
    beat.parameters_hash_step = step;
    beat.parameters_sha256 = sha256;
    return Beat(beat)->phase;
  };
  for (uint64_t step = 1; step <= 200; ++step) {
    tell(1, step, "x");
    tell(2, step, "x");
  }
  for (uint64_t step = 1; step <= 200; ++step) {
    EXPECT_EQ(tell(2, step, "x"), JobPhase::kRunning) << step;
  }
  CompleteCheckpoint(180);
  EXPECT_EQ(tell(2, 180, "of a step that nobody goes back to"), JobPhase::kRunning);
  EXPECT_EQ(tell(2, 199, "y"), JobPhase::kFailed);
  EXPECT_THAT(coordinator_.failure(), HasSubstr("after step 199"));
}

TEST_F(RepairTest, WhoHasFinishedIsNeededAgainByARestartedShard) {
  StartJob();
  CompleteCheckpoint(100);
  WorkerLeave leave{
      .last = BeatOfHolder(1, 150, /*replay_from=*/0), .finished = true, .reason = ""};
  EXPECT_EQ(coordinator_.Leave(leave, now_, &effects_)->phase, JobPhase::kRunning);
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kReplay) << "a Leave does not say what it keeps";
  Attach(13, ArrivalOf(1, 60));
  AcknowledgeStart(13);
  PassWith({2}, {11, 13}, absl::Seconds(12), 150);
  EXPECT_TRUE(Now().members[0].lost) << "it would have to send its part again";
  EXPECT_EQ(coordinator_.Leave(leave, now_, &effects_)->phase, JobPhase::kRunning);
  EXPECT_FALSE(Now().members[0].lost);
  leave.last = BeatOfHolder(2);
  EXPECT_EQ(coordinator_.Leave(leave, now_, &effects_)->phase, JobPhase::kFinished);
  Collect();
  EXPECT_TRUE(records_.back().finished);
}

TEST_F(RepairTest, WithoutAReplayLimitALossIsARollback) {
  CoordinatorOptions options = WithCheckpoints(ExampleOptions());
  Coordinator plain(options, now_);
  EXPECT_EQ(plain.Status(now_).recovery_class, RecoveryClass::kRollback);
  EXPECT_EQ(plain.Status(now_).recovery_reason, "");
  EXPECT_EQ(Coordinator(ExampleOptions(), now_).Status(now_).recovery_class, RecoveryClass::kNone);
}

CoordinatorOptions AfterARestart() {
  CoordinatorOptions options = WithRepair({.job_name = "demo",
                                           .job_hash = 9,
                                           .software_version = "1",
                                           .world_size = 2,
                                           .shards = 2,
                                           .layout = {},
                                           .job_uid = 1234,
                                           .server_incarnation = 5000});
  RunRecord record{.job_name = "demo", .job_uid = 77, .term = 3, .generation = 4};
  record.restore_step = 100;
  record.table = JoinOf(0).table;
  for (const uint32_t rank : {0, 1}) {
    record.members.push_back({.nonce = 1000 + rank,
                              .incarnation = 900 + rank,
                              .host = "a",
                              .pid = 120 + rank,
                              .parameters_sha256 = "same"});
  }
  options.run = record;
  for (const uint64_t step : {100, 200}) {
    CheckpointManifest manifest;
    manifest.step = step;
    manifest.table_hash = HashTensorTable(JoinOf(0).table);
    options.checkpoints.push_back(std::move(manifest));
  }
  return options;
}

class RestartInTermTest : public RepairTest {
 protected:
  RestartInTermTest() : RepairTest(AfterARestart()) {}

  // Of the members as the record has them.
  WorkerHeartbeat OldBeat(uint32_t rank, uint64_t step = 240) {
    WorkerHeartbeat beat;
    beat.sender = {.job_uid = 77, .term = 3, .rank = rank, .incarnation = 900 + rank};
    beat.progress.step = step;
    beat.replay_from = 201;
    return beat;
  }
  void PassWithOld(const std::vector<uint32_t>& ranks, const std::vector<ControlStreamId>& shards,
                   absl::Duration time, uint64_t step = 240) {
    for (absl::Duration done; done < time; done += absl::Seconds(1)) {
      Tick(absl::Seconds(1));
      for (const uint32_t rank : ranks) EXPECT_TRUE(Beat(OldBeat(rank, step)).ok());
      for (const ControlStreamId shard : shards) Health(shard, step, 201);
    }
  }
};

TEST_F(RestartInTermTest, TheTermGoesOnWithWhoIsThere) {
  EXPECT_THAT(records_, IsEmpty()) << "what is on disk is what is";
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
  EXPECT_EQ(coordinator_.term(), 3u);
  EXPECT_EQ(Now().generation, 4u);
  EXPECT_THAT(notices_.back(), HasSubstr("term 3 goes on where it was"));
  AttachRunning(12, 1, 3);
  EXPECT_EQ(StartOf(12), nullptr) << "it runs";
  ASSERT_NE(MembersOf(12), nullptr) << "the coordinator before may not have got to it";
  EXPECT_EQ(MembersOf(12)->generation, 4u);
  EXPECT_EQ(ReleaseOf(12)->durable_step, 200u);
  Attach(11, ArrivalOf(0, 60));
  EXPECT_EQ(StartOf(11), nullptr) << "nobody of the term was heard of yet";
  EXPECT_EQ(Beat(OldBeat(0))->term, 3u);
  ASSERT_NE(StartOf(11), nullptr);
  EXPECT_EQ(StartOf(11)->term, 3u);
  EXPECT_EQ(StartOf(11)->restore_step, 200u);
  EXPECT_TRUE(StartOf(11)->replay);
  EXPECT_THAT(StartOf(11)->incarnations, ElementsAre(900u, 901u));
  EXPECT_EQ(StartOf(11)->coordinator_incarnation, 5000u);
  EXPECT_EQ(Now().repairs, 1u);
  EXPECT_EQ(Beat(OldBeat(1))->durable_step, 200u);
  EXPECT_EQ(Now().rollbacks, 0u);
}

TEST_F(RestartInTermTest, AcknowledgementsOfTheCoordinatorBeforeAreNotOurs) {
  AttachRunning(12, 1, 3);
  Acknowledge(12, uint64_t{3} << 32 | 7);
  Join(7, JoinOf(1, 1001));  // Its first call was not answered.
  Attach(11, ArrivalOf(0, 60));
  AcknowledgeStart(11);
  EXPECT_FALSE(answers_.contains(7)) << "shard 1 has not acknowledged the membership";
  AcknowledgeMembers(12);
  ASSERT_TRUE(answers_.at(7).ok());
  EXPECT_EQ(answers_.at(7)->incarnation, 901u);
  EXPECT_EQ(answers_.at(7)->first_step, 201u);
}

TEST_F(RestartInTermTest, Shard0NamesNoCheckpointBeforeItIsWhereTheOthersAre) {
  AttachRunning(12, 1, 3);
  Attach(11, ArrivalOf(0, 60));
  PassWithOld({0, 1}, {12}, absl::Seconds(1));
  AcknowledgeStart(11);
  Health(11, 220, 201);
  PassWithOld({0, 1}, {12}, absl::Seconds(2));
  Request(1);
  EXPECT_EQ(NameOf(11), nullptr);
  Health(11, 240, 201);
  PassWithOld({0, 1}, {12}, absl::Seconds(1));
  ASSERT_NE(NameOf(11), nullptr);
  EXPECT_EQ(NameOf(11)->minimum_step, 1u) << "as soon as can be";
  coordinator_.ShardNamedCheckpoint(11, 243);
  Tick(absl::Milliseconds(100));
  ShardPart(11, PartOf(ShardPartName(0, 3), 243));
  ShardPart(12, PartOf(ShardPartName(1, 3), 243));
  for (const uint32_t rank : {0, 1}) {
    WorkerHeartbeat beat = OldBeat(rank, 250);
    beat.parts.push_back(PartOf(WorkerPartName(rank, 3), 243));
    EXPECT_TRUE(Beat(beat).ok());
  }
  Written(243);
  EXPECT_EQ(*checkpoint_answers_.at(1), 243u);
  EXPECT_EQ(NameOf(11)->minimum_step, 300u);
}

TEST_F(RestartInTermTest, PartsOfACheckpointThatWasForgottenAreGatheredAgain) {
  AttachRunning(12, 1, 3);
  ShardPart(12, PartOf(ShardPartName(1, 3), 230));
  Attach(11, ArrivalOf(0, 60));
  for (const uint32_t rank : {0, 1}) {
    WorkerHeartbeat beat = OldBeat(rank);
    beat.parts.push_back(PartOf(WorkerPartName(rank, 3), 230));
    EXPECT_TRUE(Beat(beat).ok());
  }
  AcknowledgeStart(11);
  EXPECT_THAT(manifests_, IsEmpty());
  ShardPart(11, PartOf(ShardPartName(0, 3), 230));  // It has taken the steps up again.
  ASSERT_EQ(manifests_.size(), 1u);
  EXPECT_EQ(manifests_[0].step, 230u);
}

TEST_F(RestartInTermTest, AForgottenCheckpointThatCannotBecomeCompleteIsGivenUpSoon) {
  AttachRunning(12, 1, 3);
  Attach(11, ArrivalOf(0, 60));
  PassWithOld({0, 1}, {12}, absl::Seconds(1));
  AcknowledgeStart(11);
  ShardPart(12, PartOf(ShardPartName(1, 3), 230));
  PassWithOld({0, 1}, {11, 12}, absl::Seconds(30), 229);
  EXPECT_THAT(warnings_, IsEmpty()) << "somebody is still before it";
  PassWithOld({0, 1}, {11, 12}, absl::Seconds(55), 240);
  EXPECT_THAT(warnings_, IsEmpty());
  PassWithOld({0, 1}, {11, 12}, absl::Seconds(10), 240);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], AllOf(HasSubstr("after step 230 is given up"),
                                  HasSubstr("worker-1-term-3.state did not come in 1m, and the "
                                            "coordinator that asked for it is gone")));
  ASSERT_NE(NameOf(11), nullptr);
  EXPECT_EQ(NameOf(11)->minimum_step, 300u);
}

TEST_F(RestartInTermTest, ALaterCheckpointShowsThatTheOneBeforeWasGivenUp) {
  AttachRunning(12, 1, 3);
  ShardPart(12, PartOf(ShardPartName(1, 3), 230));
  EXPECT_TRUE(Beat(OldBeat(0)).ok());
  WorkerHeartbeat beat = OldBeat(1, 260);
  beat.parts.push_back(PartOf(WorkerPartName(1, 3), 250));
  EXPECT_TRUE(Beat(beat).ok());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("after step 230 is given up: the one after step 250"));
  ShardPart(12, PartOf(ShardPartName(1, 3), 230));
  EXPECT_EQ(warnings_.size(), 1u) << "too late";
}

TEST_F(RestartInTermTest, AShardThatDiedWithTheCoordinatorIsBroughtBackAsWell) {
  Attach(11, ArrivalOf(0, 60));
  Attach(12, ArrivalOf(1, 61));
  EXPECT_TRUE(Beat(OldBeat(1)).ok());
  ASSERT_NE(StartOf(11), nullptr);
  ASSERT_NE(StartOf(12), nullptr);
  EXPECT_TRUE(StartOf(12)->replay);
  EXPECT_EQ(Now().repairs, 2u);
  EXPECT_EQ(coordinator_.term(), 3u);
}

TEST_F(RestartInTermTest, AShardOfAnEarlierTermOrAnotherRunIsStarted) {
  EXPECT_TRUE(Beat(OldBeat(1)).ok());
  AttachRunning(12, 1, 2);
  ASSERT_NE(StartOf(12), nullptr) << "of the term before";
  EXPECT_EQ(StartOf(12)->term, 3u);
}

TEST_F(RestartInTermTest, AWorkerThatDiedWithTheCoordinatorIsReplaced) {
  AttachRunning(12, 1, 3);
  Attach(11, ArrivalOf(0, 60));
  Join(7, JoinOf(1, 7777));
  PassWithOld({0}, {11, 12}, absl::Seconds(9));
  EXPECT_THAT(records_, IsEmpty()) << "the holder may not have found us yet";
  AcknowledgeStart(11);
  PassWithOld({0}, {11, 12}, absl::Seconds(2));
  ASSERT_EQ(records_.size(), 1u);
  EXPECT_EQ(records_[0].generation, 5u);
  EXPECT_EQ(records_[0].term, 3u);
  AcknowledgeMembers(11);
  AcknowledgeMembers(12);
  EXPECT_EQ(answers_.at(7)->first_step, 201u);
  EXPECT_EQ(answers_.at(7)->term, 3u);
}

TEST_F(RestartInTermTest, AWorkerThatIsSilentIsAwaited) {
  AttachRunning(12, 1, 3);
  AttachRunning(11, 0, 3);
  PassWithOld({0}, {11, 12}, absl::Seconds(11));
  EXPECT_EQ(coordinator_.term(), 3u);
  EXPECT_TRUE(Now().members[1].lost);
  PassWithOld({0}, {11, 12}, absl::Minutes(10));
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFailed);
  EXPECT_THAT(coordinator_.failure(), HasSubstr("rank 1 (host a, pid 121) did not come back"));
}

TEST_F(RestartInTermTest, AShardThatNeverComesBackEndsTheJob) {
  AttachRunning(11, 0, 3);
  PassWithOld({0, 1}, {11}, absl::Minutes(10) + absl::Seconds(2));
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFailed);
  EXPECT_THAT(coordinator_.failure(), HasSubstr("shard 1 did not come back"));
}

TEST_F(RestartInTermTest, PowerCutOfEverything) {
  Attach(11, ArrivalOf(0, 60));
  Attach(12, ArrivalOf(1, 61));
  Join(7, JoinOf(0, 7000));
  Tick(absl::Seconds(1));
  EXPECT_EQ(coordinator_.term(), 3u) << "rank 1 may be alive";
  Join(8, JoinOf(1, 7001));
  Tick(absl::Milliseconds(100));
  EXPECT_EQ(coordinator_.term(), 4u) << "nobody is left, and there is nobody to wait for";
  EXPECT_EQ(Now().repairs, 0u);
  EXPECT_EQ(warnings_.back(),
            "rank 0 (host a, pid 120) was replaced by a pid 120, and no worker of term 3 is left; "
            "the job goes back to step 200 (term 4)");
  AcknowledgeAll();
  ASSERT_TRUE(answers_.at(7).ok());
  EXPECT_EQ(answers_.at(7)->term, 4u);
  EXPECT_EQ(answers_.at(8)->restore_step, 200u);
  EXPECT_FALSE(StartOf(12)->replay);
}

TEST_F(RestartInTermTest, NobodyComesBackAtAll) {
  Pass(absl::Seconds(11));
  EXPECT_EQ(coordinator_.term(), 3u) << "they may be cut off";
  Pass(absl::Minutes(11));
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFailed);
}

TEST_F(RestartInTermTest, WorkersThatKeepTooLittleTakeARollback) {
  AttachRunning(12, 1, 3);
  WorkerHeartbeat beat = OldBeat(0);
  beat.replay_from = 230;
  EXPECT_TRUE(Beat(beat).ok());
  Attach(11, ArrivalOf(0, 60));
  EXPECT_EQ(coordinator_.term(), 4u);
  EXPECT_THAT(warnings_.back(), AllOf(HasSubstr("keeps only what came from step 230"),
                                      HasSubstr("from step 240 to step 200: 40 steps are lost")));
  EXPECT_EQ(NewestOf<SuspendShard>(12)->command.index(),
            NewestOf<SuspendShard>(11)->command.index());
}

CoordinatorOptions AfterTheEnd() {
  CoordinatorOptions options = AfterARestart();
  options.run->finished = true;
  return options;
}

class FinishedRunTest : public RepairTest {
 protected:
  FinishedRunTest() : RepairTest(AfterTheEnd()) {}
};

TEST_F(FinishedRunTest, ItsWorkersAndShardsAreTold) {
  EXPECT_THAT(records_, IsEmpty());
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFinished);
  AttachRunning(12, 1, 3);
  ASSERT_NE(LastOf<EndShard>(12), nullptr);
  EXPECT_EQ(LastOf<EndShard>(12)->phase, JobPhase::kFinished);
  Attach(11, ArrivalOf(0, 60));
  EXPECT_NE(LastOf<EndShard>(11), nullptr);
  AcknowledgeAll();
  EXPECT_FALSE(coordinator_.AnyToldEnd());
  EXPECT_FALSE(coordinator_.Drained());
  for (const uint32_t rank : {0, 1}) {
    WorkerLeave leave{.last = {}, .finished = true, .reason = ""};
    leave.last.sender = {.job_uid = 77, .term = 3, .rank = rank, .incarnation = 900 + rank};
    EXPECT_EQ(coordinator_.Leave(leave, now_, &effects_)->phase, JobPhase::kFinished);
    EXPECT_TRUE(coordinator_.AnyToldEnd());
  }
  EXPECT_TRUE(coordinator_.Drained());
  Join(7, JoinOf(1, 7777));
  EXPECT_THAT(AnswerText(7), HasSubstr("job demo has finished"));
  Pass(absl::Minutes(20));
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFinished);
}

CoordinatorOptions AfterARestartBeforeTheAnnouncement() {
  CoordinatorOptions options = AfterARestart();
  options.run->generation = 0;
  options.run->members.clear();
  options.run->table.clear();
  return options;
}

TEST(RestartedCoordinator, ATermThatWasNotAnnouncedIsFollowedByTheNext) {
  Coordinator coordinator(AfterARestartBeforeTheAnnouncement(), absl::UnixEpoch());
  EXPECT_EQ(coordinator.term(), 4u);
  EXPECT_EQ(coordinator.phase(), JobPhase::kRecovering);
}

TEST(RestartedCoordinator, ARecordOfAnotherWorldOrWithoutAReplayLimitIsFollowedByTheNextTerm) {
  CoordinatorOptions options = AfterARestart();
  options.world_size = 3;
  EXPECT_EQ(Coordinator(options, absl::UnixEpoch()).term(), 4u);
  options = AfterARestart();
  options.replay_limit = 0;
  EXPECT_EQ(Coordinator(options, absl::UnixEpoch()).term(), 4u);
}

}  // namespace
}  // namespace sluice
