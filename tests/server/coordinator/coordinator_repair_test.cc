// Tests how the coordinator repairs losses in the current term, and when it rolls back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/repair_fixture.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(RepairTest, TheTermAndItsMembersAreOnDiskBeforeTheyAreAnnounced) {
  StartJob();  // The fixture checks the order of the effects.
  ASSERT_EQ(records_.size(), 2u);
  EXPECT_EQ(records_[0].generation, 0u);
  const protocol::RunRecord& record = records_[1];
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
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_EQ(refusals_.at(12).code(), absl::StatusCode::kAborted)
      << "the old process's stream is refused";
  ASSERT_NE(StartOf(13), nullptr);
  EXPECT_EQ(StartOf(13)->term, 0u);
  EXPECT_EQ(StartOf(13)->first_step, 101u);
  EXPECT_EQ(StartOf(13)->restore_step, 100u);
  EXPECT_TRUE(StartOf(13)->replay);
  EXPECT_TRUE(StartOf(13)->parameters_agree);
  EXPECT_EQ(StartOf(13)->generation, 1u);
  EXPECT_THAT(StartOf(13)->incarnations,
              ElementsAre(answers_.at(1)->incarnation, answers_.at(2)->incarnation));
  EXPECT_EQ(NewestOf<protocol::SuspendShard>(11), nullptr) << "the other shard only waits";
  EXPECT_EQ(Now().repairs, 1u);
  EXPECT_THAT(Now().last_repair, AllOf(HasSubstr("shard 1 (h:7071) was restarted"),
                                       HasSubstr("replays from step 101")));
  EXPECT_THAT(notices_, Contains(Now().last_repair));
  EXPECT_EQ(Now().rollbacks, 0u);
  AcknowledgeStart(13);
  EXPECT_EQ(*&Beat(BeatOfHolder(1))->term, 0u);
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kReplay) << "the next loss can be repaired too";
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
  ASSERT_NE(StartOf(15), nullptr) << "the shard may have missed its start";
  EXPECT_EQ(StartOf(15)->restore_step, 100u);
  EXPECT_TRUE(StartOf(15)->replay);
  EXPECT_EQ(Now().repairs, 2u) << "the process was not replaced";
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
  protocol::WorkerJoin different = JoinOf(1);
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
  EXPECT_TRUE(StartOf(13)->parameters_agree) << "the parameters come from the checkpoint";
}

TEST_F(RepairTest, WhatTheWorkersDoNotKeepTakesARollback) {
  StartJob();
  CompleteCheckpoint(100);
  ASSERT_TRUE(Beat(BeatOfHolder(1, 140, 101)).ok());
  ASSERT_TRUE(Beat(BeatOfHolder(2, 140, 103)).ok());
  Attach(13, ArrivalOf(1, 60));
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("shard 1 (h:7071) was restarted"), HasSubstr("and rank 1"),
                    HasSubstr("from step 103 on"), HasSubstr("step 101 would be needed"),
                    HasSubstr("replay_limit is 1048576"), HasSubstr("40 steps are lost")));
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
  ASSERT_EQ(warnings_.size(), 1u) << "the warning is given only once";
  EXPECT_THAT(warnings_[0],
              AllOf(HasSubstr("recovery class rollback): rank 0"), HasSubstr("from step 7 on")));
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kRollback);
  CompleteCheckpoint(100);
  Tick(absl::Milliseconds(100));
  EXPECT_THAT(notices_, Contains(HasSubstr("recovery class replay")));
  Health(12, 150, 120);
  Tick(absl::Milliseconds(100));
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("shard 1 (h:7071) keeps only"), HasSubstr("from step 120 on")));
  Health(12, 150, 0);
  EXPECT_THAT(Now().recovery_reason, HasSubstr("keeps no results"));
}

TEST_F(RepairTest, AShardThatIsSilentIsAwaited) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11}, absl::Seconds(11), 140);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_EQ(refusals_.at(12).code(), absl::StatusCode::kAborted)
      << "the silent shard's stream is closed";
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], AllOf(HasSubstr("shard 1"), HasSubstr("10s (server.lease_timeout)"),
                                  HasSubstr("10m (server.rejoin_timeout)")));
  EXPECT_TRUE(Now().shards[1].lost);
  EXPECT_FALSE(Now().shards[0].lost);
  ForgetCommands();
  AttachRunning(14, 1, 0);  // The process did not die; it was only stalled.
  EXPECT_EQ(StartOf(14), nullptr);
  EXPECT_EQ(ReleaseOf(14)->durable_step, 100u) << "the shard may have missed the release";
  EXPECT_FALSE(Now().shards[1].lost);
  EXPECT_THAT(notices_, Contains("shard 1 (h:7071) is back"));
  EXPECT_EQ(Now().repairs, 0u);
}

TEST_F(RepairTest, WhoIsLostIsAwaitedUpToTheWaitLimit) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1}, {11}, absl::Minutes(9), 140);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("shard 1"), HasSubstr("and rank 1"),
                                           HasSubstr("did not report for 10s"))));
  EXPECT_TRUE(Now().members[1].lost);
  PassWith({1}, {11}, absl::Minutes(1) + absl::Seconds(1), 140);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
  EXPECT_THAT(coordinator_.failure(),
              AllOf(HasSubstr("waited 10m: shard 1"), HasSubstr("and rank 1"),
                    HasSubstr("--resume, or raise server.rejoin_timeout")));
  EXPECT_FALSE(records_.back().finished);
}

TEST_F(RepairTest, AWorkerThatWasSilentIsSimplyBack) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1}, {11, 12}, absl::Seconds(12), 140);
  EXPECT_TRUE(Now().members[1].lost);
  EXPECT_EQ(Beat(BeatOfHolder(2, 141))->term, 0u);
  EXPECT_FALSE(Now().members[1].lost);
  EXPECT_THAT(notices_, Contains(AllOf(HasSubstr("rank 1"), HasSubstr("is back"))));
  EXPECT_EQ(Now().repairs, 0u);
}

TEST_F(RepairTest, TheJobBeginsThoughTheWordThatAShardHasBegunIsLost) {
  Join(1, JoinOf(0));
  Join(2, JoinOf(1));
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  Acknowledge(11, commands_.at(11).sequence);
  coordinator_.ShardDetached(12);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kWaiting);
  AttachRunning(13, 1, 0);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_EQ(NewestOf<protocol::StartShard>(13), nullptr) << "the shard is already running";
  ASSERT_TRUE(answers_.contains(1) && answers_.contains(2));
  EXPECT_EQ(answers_.at(2)->first_step, 1u);
  EXPECT_NE(NameOf(11), nullptr) << "checkpoints must be requested";
}

TEST_F(RepairTest, ATermBeginsThoughTheWordThatAShardHasBegunIsLost) {
  StartJob();
  CompleteCheckpoint(100);
  Attach(13, ArrivalOf(1, 60));
  ASSERT_NE(StartOf(13), nullptr);
  coordinator_.ShardNotReproducible(13, 0, "rank 0 sent something else", now_, &effects_);
  Collect();
  ASSERT_EQ(coordinator_.term(), 1u);
  answers_.clear();
  Join(1, JoinOf(0, 500));
  Join(2, JoinOf(1, 501));
  AcknowledgeStart(11);
  coordinator_.ShardDetached(13);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  AttachRunning(14, 1, 1, 60);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_EQ(answers_.at(1)->restore_step, 100u);
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
              AllOf(HasSubstr("rank 1"), HasSubstr("did not report for 10s"),
                    HasSubstr("shard 0 (h:7070) keeps only"), HasSubstr("from step 120 on")));
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
  EXPECT_FALSE(answers_.contains(7)) << "shard 1 is lost and does not know the successor";
  Attach(13, ArrivalOf(1, 60));
  ASSERT_NE(StartOf(13), nullptr);
  EXPECT_EQ(StartOf(13)->generation, 2u);
  EXPECT_EQ(StartOf(13)->incarnations[1], MembersOf(11)->incarnations[1]);
  AcknowledgeStart(13);
  EXPECT_EQ(MembersOf(13), nullptr) << "the start already named the members";
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
  EXPECT_EQ(MembersOf(13), nullptr) << "the shard has not started yet";
  AcknowledgeMembers(11);
  AcknowledgeStart(13);
  EXPECT_FALSE(answers_.contains(7)) << "the start was for generation 1";
  ASSERT_NE(MembersOf(13), nullptr);
  EXPECT_EQ(MembersOf(13)->generation, 2u);
  // The command was lost with the stream and must be sent again.
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
  ShardPart(12, PartOf(protocol::ShardPartName(1, 0), 200));
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
  EXPECT_EQ(records_.back().generation, 1u)
      << "no worker is replaced because the coordinator paused";
  PassWith({1, 2}, {11, 12}, absl::Seconds(3), 140);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(RepairTest, ACheckpointDoesNotPassWhoIsBeingBroughtBack) {
  StartJob();
  CompleteCheckpoint(100);
  // All parts of checkpoint 200 except rank 0's have arrived when rank 1 and shard 1 die.
  ShardPart(11, PartOf(protocol::ShardPartName(0, 0), 200));
  ShardPart(12, PartOf(protocol::ShardPartName(1, 0), 200));
  EXPECT_TRUE(WorkerPart(1, PartOf(protocol::WorkerPartName(1, 0), 200)).ok());
  Attach(13, ArrivalOf(1, 60));
  Join(7, JoinOf(1, 9999));
  PassWith({1}, {11, 13}, absl::Seconds(3), 200);
  AcknowledgeStart(13);
  AcknowledgeMembers(11);
  AcknowledgeMembers(13);
  ASSERT_TRUE(answers_.at(7).ok());
  EXPECT_TRUE(WorkerPart(0, PartOf(protocol::WorkerPartName(0, 0), 200)).ok());
  EXPECT_EQ(manifests_.size(), 1u) << "both continue from step 100 and need the data after it";
  protocol::CheckpointPart again = PartOf(protocol::WorkerPartName(1, 0), 200);
  again.checksum = 5;
  EXPECT_TRUE(coordinator_.WorkerPart(BeatOfHolder(7).sender, again, now_, &effects_).ok());
  Collect();
  EXPECT_EQ(manifests_.size(), 1u);
  ShardPart(13, PartOf(protocol::ShardPartName(1, 0), 200));
  ASSERT_EQ(manifests_.size(), 2u);
  EXPECT_EQ(manifests_[1].parts.back().checksum, 5u)
      << "the manifest must describe the file that is on disk now";
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
  EXPECT_EQ(ReleaseOf(11), nullptr) << "the checkpoint is not durable yet";
  EXPECT_EQ(Beat(BeatOfHolder(1))->durable_step, 0u);
  Written(100);
  EXPECT_EQ(ReleaseOf(11)->durable_step, 100u);
  EXPECT_EQ(ReleaseOf(12)->durable_step, 100u);
  EXPECT_EQ(Beat(BeatOfHolder(1))->durable_step, 100u);
}

TEST_F(RepairTest, PartsThatAreRepeatedAreTakenOnce) {
  StartJob();
  ShardPart(11, PartOf(protocol::ShardPartName(0, 0), 100));
  ShardPart(12, PartOf(protocol::ShardPartName(1, 0), 100));
  for (int i = 0; i < 3; ++i) {
    for (const uint32_t rank : {0, 1}) {
      protocol::WorkerHeartbeat beat = BeatOfHolder(1 + rank);
      beat.parts.push_back(PartOf(protocol::WorkerPartName(rank, 0), 100));
      EXPECT_TRUE(Beat(beat).ok());
    }
  }
  EXPECT_EQ(manifests_.size(), 1u);
  Written(100);
  protocol::WorkerHeartbeat beat = BeatOfHolder(1);
  beat.parts.push_back(PartOf(protocol::WorkerPartName(0, 0), 100));
  // This part belongs to another worker.
  beat.parts.push_back(PartOf(protocol::WorkerPartName(1, 0), 200));
  EXPECT_TRUE(Beat(beat).ok());
  GiveAllParts(200);
  EXPECT_EQ(manifests_.size(), 2u);
}

TEST_F(RepairTest, ADamagedCheckpointThatARepairNeedsMakesWayForTheOneBefore) {
  StartJob();
  CompleteCheckpoint(100);
  CompleteCheckpoint(200);
  Attach(13, ArrivalOf(1, 60));
  protocol::CheckpointPart damaged = PartOf(protocol::ShardPartName(1, 0), 200);
  damaged.error = "section 2: the checksum differs";
  damaged.unreadable = true;
  ShardPart(13, damaged);
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(), HasSubstr("step 200 cannot be used"));
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
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("rank 1 sent other bytes"), HasSubstr("for step 130")));
}

TEST_F(RepairTest, HashesThatAreToldAgainMustBeTheSame) {
  StartJob();
  const auto tell = [&](JoinToken holder, uint64_t step, const std::string& sha256) {
    protocol::WorkerHeartbeat beat = BeatOfHolder(holder);
    beat.parameters_hash_step = step;
    beat.parameters_sha256 = sha256;
    return Beat(beat)->phase;
  };
  for (uint64_t step = 1; step <= 200; ++step) {
    tell(1, step, "x");
    tell(2, step, "x");
  }
  for (uint64_t step = 1; step <= 200; ++step) {
    EXPECT_EQ(tell(2, step, "x"), protocol::JobPhase::kRunning) << step;
  }
  CompleteCheckpoint(180);
  EXPECT_EQ(tell(2, 180, "of a step that nobody goes back to"), protocol::JobPhase::kRunning);
  EXPECT_EQ(tell(2, 199, "y"), protocol::JobPhase::kFailed);
  EXPECT_THAT(coordinator_.failure(), HasSubstr("after step 199"));
}

TEST_F(RepairTest, WhoHasFinishedIsNeededAgainByARestartedShard) {
  StartJob();
  CompleteCheckpoint(100);
  protocol::WorkerLeave leave{
      .last = BeatOfHolder(1, 150, /*replay_from=*/0), .finished = true, .reason = ""};
  EXPECT_EQ(coordinator_.Leave(leave, now_, &effects_)->phase, protocol::JobPhase::kRunning);
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kReplay)
      << "a Leave does not report the kept contributions";
  Attach(13, ArrivalOf(1, 60));
  AcknowledgeStart(13);
  PassWith({2}, {11, 13}, absl::Seconds(12), 150);
  EXPECT_TRUE(Now().members[0].lost) << "rank 0 would have to send its contributions again";
  EXPECT_EQ(coordinator_.Leave(leave, now_, &effects_)->phase, protocol::JobPhase::kRunning);
  EXPECT_FALSE(Now().members[0].lost);
  leave.last = BeatOfHolder(2);
  EXPECT_EQ(coordinator_.Leave(leave, now_, &effects_)->phase, protocol::JobPhase::kFinished);
  Collect();
  EXPECT_TRUE(records_.back().finished);
}

TEST_F(RepairTest, WithoutAReplayLimitALossIsARollback) {
  CoordinatorOptions options = WithCheckpoints(ExampleOptions());
  Coordinator plain(options, now_);
  EXPECT_EQ(plain.Status(now_).recovery_class, RecoveryClass::kRollback);
  EXPECT_EQ(plain.Status(now_).recovery_reason, "");
  EXPECT_EQ(Coordinator(ExampleOptions(), now_).Status(now_).recovery_class, RecoveryClass::kNone);
  options.why_no_replay = "in mode async nobody knows";
  EXPECT_EQ(Coordinator(options, now_).Status(now_).recovery_reason, "in mode async nobody knows");
}

}  // namespace
}  // namespace sluice::server
