// Tests how the coordinator of a job with checkpoints rolls back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/checkpoint_fixture.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(RollbackTest, ARollbackAnswersRequests) {
  StartJob();
  Request(1);
  PassWithout(1, absl::Seconds(11));
  EXPECT_EQ(checkpoint_answers_.at(1).status().code(), absl::StatusCode::kUnavailable);
}

class LocalStepsRollbackTest : public RollbackTest {
 protected:
  LocalStepsRollbackTest() : RollbackTest(Options()) {}

  static CoordinatorOptions Options() {
    CoordinatorOptions options = WithCheckpoints(ExampleOptions());
    options.steps_per_exchange = 20;
    return options;
  }
};

// Workers report their own steps, but checkpoints and shards count exchanges. The coordinator must
// convert the workers' steps.
TEST_F(LocalStepsRollbackTest, OwnStepsAreNotTakenForExchanges) {
  StartJob();
  CompleteCheckpoint(100);
  protocol::WorkerHeartbeat far = BeatOf(0);
  far.progress.step = 2810;
  ASSERT_TRUE(Beat(far).ok());
  PassWithout(1, absl::Seconds(11));
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("step 140 to step 100"), HasSubstr("40 steps are lost")));
}

TEST_F(RollbackTest, ALostWorkerBringsAllBackToTheCheckpoint) {
  StartJob();
  CompleteCheckpoint(100);
  protocol::WorkerHeartbeat far = BeatOf(0);
  far.progress.step = 140;
  ASSERT_TRUE(Beat(far).ok());
  const protocol::WorkerHeartbeat old = BeatOf(0);
  PassWithout(1, absl::Seconds(11));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  EXPECT_EQ(records_.back().term, 1u);
  EXPECT_FALSE(records_.back().finished);
  EXPECT_EQ(LastOf<protocol::SuspendShard>(11)->term, 1u);
  EXPECT_EQ(LastOf<protocol::SuspendShard>(12)->term, 1u);
  EXPECT_THAT(warnings_.back(), AllOf(HasSubstr("rank 1"), HasSubstr("10s (server.lease_timeout)"),
                                      HasSubstr("step 140 to step 100")));
  EXPECT_EQ(coordinator_.Status(now_).rollbacks, 1u);
  EXPECT_THAT(coordinator_.Status(now_).last_rollback, HasSubstr("40 steps are lost"));

  const protocol::JobState told = *Beat(old);
  EXPECT_EQ(told.term, 1u) << "the worker must join again instead of failing";
  EXPECT_EQ(told.phase, protocol::JobPhase::kRecovering);
  EXPECT_EQ(coordinator_.Leave({old, true, ""}, now_, &effects_)->term, 1u);

  ComeAgain();
  const protocol::JoinGrant& grant = *answers_.at(2);
  EXPECT_EQ(grant.term, 1u);
  EXPECT_EQ(grant.restore_step, 100u);
  EXPECT_EQ(grant.first_step, 101u);
  EXPECT_EQ(grant.job_uid, 77u);
  EXPECT_EQ(LastOf<protocol::NameCheckpoint>(11)->minimum_step, 200u);
  protocol::WorkerHeartbeat stranger = BeatOf(0);
  stranger.sender.incarnation = old.sender.incarnation;
  EXPECT_EQ(Beat(stranger).status().code(), absl::StatusCode::kFailedPrecondition)
      << "the sender does not hold the rank in this term";
  CompleteCheckpoint(200);
  EXPECT_EQ(manifests_.back().term, 1u);
}

TEST_F(RollbackTest, ShardsAreStartedFromTheCheckpointAndOnlyOnce) {
  StartJob();
  CompleteCheckpoint(100);
  PassWithout(1, absl::Seconds(11));
  AcknowledgeAll();  // Acknowledges the suspension.
  answers_.clear();
  Join(1, JoinOf(0, 7000));
  EXPECT_EQ(LastOf<protocol::StartShard>(11), nullptr) << "rank 1 has not joined yet";
  protocol::WorkerJoin different = JoinOf(1, 7001);
  different.parameters_sha256 = "as it was before the restore";
  Join(2, different);
  const protocol::StartShard& start = *LastOf<protocol::StartShard>(12);
  EXPECT_EQ(start.term, 1u);
  EXPECT_EQ(start.restore_step, 100u);
  EXPECT_EQ(start.first_step, 101u);
  EXPECT_TRUE(start.parameters_agree) << "all ranks restore the same parameters";
  Acknowledge(11, commands_.at(11).sequence);
  EXPECT_TRUE(answers_.empty());
  coordinator_.ShardDetached(12);
  Attach(13, ArrivalOf(1));
  EXPECT_EQ(LastOf<protocol::StartShard>(13)->restore_step, 100u)
      << "the shard may have missed the first command";
  Acknowledge(13, commands_.at(13).sequence);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
}

TEST_F(RollbackTest, WithoutACheckpointTheJobGoesBackToItsStart) {
  StartJob();
  PassWithout(0, absl::Seconds(11));
  EXPECT_THAT(warnings_.back(), HasSubstr("to its start"));
  ComeAgain();
  EXPECT_EQ(answers_.at(1)->restore_step, 0u);
  EXPECT_EQ(answers_.at(1)->first_step, 1u);
  EXPECT_EQ(answers_.at(1)->term, 1u);
}

TEST_F(RollbackTest, ARestartedShardIsTakenBack) {
  StartJob();
  CompleteCheckpoint(100);
  // The old connection of the shard may still appear alive.
  Attach(13, ArrivalOf(1, /*incarnation=*/60));
  EXPECT_EQ(refusals_.at(12).code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(refusals_.contains(13));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("shard 1 (h:7071) was restarted"), HasSubstr("the job goes back")));
  EXPECT_EQ(LastOf<protocol::SuspendShard>(13)->term, 1u);
  Attach(12, ArrivalOf(1, /*incarnation=*/50));
  EXPECT_EQ(refusals_.at(12).code(), absl::StatusCode::kFailedPrecondition)
      << "the older process is refused";
  commands_.erase(12);
  ComeAgain();
  EXPECT_EQ(answers_.at(1)->shards.at(1).server_incarnation, 60u);
}

TEST_F(RollbackTest, ALostShardIsAwaited) {
  StartJob();
  CompleteCheckpoint(100);
  for (int i = 0; i < 11; ++i) {
    Tick(absl::Seconds(1));
    EXPECT_TRUE(Beat(BeatOf(0)).ok());
    EXPECT_TRUE(Beat(BeatOf(1)).ok());
    coordinator_.ShardHealth(11, {}, now_);
  }
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  EXPECT_EQ(refusals_.at(12).code(), absl::StatusCode::kAborted)
      << "the silent shard's stream is closed";
  commands_.erase(12);
  answers_.clear();
  Join(1, JoinOf(0, 8000));
  Join(2, JoinOf(1, 8001));
  EXPECT_EQ(LastOf<protocol::StartShard>(11), nullptr);
  Attach(14, ArrivalOf(1));  // The process did not die; it was only stalled.
  EXPECT_EQ(LastOf<protocol::StartShard>(14)->term, 1u);
  AcknowledgeAll();
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
}

TEST_F(RollbackTest, TwoLostAtOnceAreOneRollback) {
  StartJob();
  CompleteCheckpoint(100);
  for (int i = 0; i < 11; ++i) {
    Tick(absl::Seconds(1));
    EXPECT_TRUE(Beat(BeatOf(0)).ok());
    coordinator_.ShardHealth(11, {}, now_);
  }
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("shard 1"), HasSubstr("and rank 1"), HasSubstr("did not report")));
}

TEST_F(RollbackTest, ASuccessorWaitsUntilTheOldOneIsSilent) {
  StartJob();
  CompleteCheckpoint(100);
  Join(7, JoinOf(1, 9999));
  EXPECT_FALSE(answers_.contains(7));
  PassWithout(1, absl::Seconds(2));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  PassWithout(1, absl::Seconds(1));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  EXPECT_THAT(warnings_.back(), AllOf(HasSubstr("rank 1"), HasSubstr("replaced by a pid 121")));
  Join(8, JoinOf(0, 9998));
  AcknowledgeAll();
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_EQ(answers_.at(7)->restore_step, 100u);
  EXPECT_EQ(answers_.at(8)->term, 1u);
}

TEST_F(RollbackTest, ASuccessorOfALivingWorkerIsRefused) {
  StartJob();
  Join(7, JoinOf(1, 9999));
  Join(8, JoinOf(1, 9999));
  EXPECT_EQ(answers_.at(7).status().code(), absl::StatusCode::kAborted)
      << "the worker's second call replaces the first";
  PassWithout(9, absl::Seconds(1));
  EXPECT_EQ(answers_.at(8).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(AnswerText(8), AllOf(HasSubstr("rank 1"), HasSubstr("holds the rank")));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  Join(9, JoinOf(1, 9999));
  coordinator_.JoinCancelled(9);
  PassWithout(1, absl::Seconds(5));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning) << "no newcomer waits for the rank";
}

TEST_F(RollbackTest, WhoDiesWhileWaitingToComeBackIsReplaced) {
  StartJob();
  PassWithout(1, absl::Seconds(11));
  AcknowledgeAll();
  answers_.clear();
  Join(21, JoinOf(0, 600));
  Join(22, JoinOf(0, 601));  // The connection of the first newcomer is not known to be broken yet.
  EXPECT_TRUE(answers_.empty());
  coordinator_.JoinCancelled(21);
  Tick(absl::Milliseconds(100));
  Join(23, JoinOf(1, 602));
  AcknowledgeAll();
  EXPECT_EQ(answers_.at(22)->term, 1u);
  EXPECT_FALSE(answers_.contains(21));
}

TEST_F(RollbackTest, WhoDoesNotComeWithinTheWaitLimitEndsTheJob) {
  StartJob();
  PassWithout(1, absl::Seconds(11));
  answers_.clear();
  Join(1, JoinOf(0, 600));
  Pass(absl::Minutes(9));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  Pass(absl::Minutes(2));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
  EXPECT_EQ(answers_.at(1).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(coordinator_.failure(),
              AllOf(HasSubstr("waited 10m: rank 1"), HasSubstr("did not come back")));
  EXPECT_FALSE(records_.back().finished) << "--resume can continue the run";
}

TEST_F(RollbackTest, AShardLostWhileStartingAgainRaisesTheTermAgain) {
  StartJob();
  CompleteCheckpoint(100);
  PassWithout(1, absl::Seconds(11));
  AcknowledgeAll();
  answers_.clear();
  Join(1, JoinOf(0, 600));
  Join(2, JoinOf(1, 601));
  Acknowledge(11, commands_.at(11).sequence);
  coordinator_.ShardDetached(12);
  commands_.erase(12);
  Attach(13, ArrivalOf(1, /*incarnation=*/60));
  EXPECT_EQ(coordinator_.term(), 2u);
  EXPECT_TRUE(answers_.empty()) << "no worker has begun; their calls still wait";
  EXPECT_EQ(LastOf<protocol::StartShard>(11)->term, 2u) << "all workers have joined";
  EXPECT_EQ(LastOf<protocol::StartShard>(13)->term, 2u);
  Acknowledge(11, commands_.at(11).sequence - 2);  // This acknowledgement belongs to term 1.
  Acknowledge(13, commands_.at(13).sequence);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  Acknowledge(11, commands_.at(11).sequence);
  EXPECT_EQ(answers_.at(1)->term, 2u);
}

TEST_F(RollbackTest, ADamagedCheckpointMakesWayForTheOneBefore) {
  StartJob();
  CompleteCheckpoint(100);
  CompleteCheckpoint(200);
  PassWithout(1, absl::Seconds(11));
  AcknowledgeAll();
  answers_.clear();
  Join(1, JoinOf(0, 600));
  Join(2, JoinOf(1, 601));
  ASSERT_EQ(LastOf<protocol::StartShard>(12)->restore_step, 200u);
  protocol::CheckpointPart damaged = PartOf(protocol::ShardPartName(1, 0), 200);
  damaged.error = "section 2: the checksum differs";
  damaged.unreadable = true;
  ShardPart(12, damaged);
  EXPECT_EQ(coordinator_.term(), 2u);
  EXPECT_THAT(warnings_.back(), AllOf(HasSubstr("step 200 cannot be used"),
                                      HasSubstr("section 2: the checksum differs"),
                                      HasSubstr("step 200 to step 100")));
  EXPECT_EQ(LastOf<protocol::StartShard>(12)->restore_step, 100u)
      << "all workers have already joined";
  // This part arrives too late, so it must have no effect.
  ShardPart(11, PartOf(protocol::ShardPartName(0, 0), 200));
  AcknowledgeAll();
  ASSERT_EQ(answers_.at(1)->restore_step, 100u);
  damaged = PartOf(protocol::WorkerPartName(1, 0), 100);
  damaged.error = "missing";
  damaged.unreadable = true;
  EXPECT_TRUE(WorkerPart(1, damaged).ok());
  EXPECT_EQ(coordinator_.term(), 3u);
  EXPECT_THAT(warnings_.back(), HasSubstr("to its start"));
}

TEST_F(RollbackTest, HashesOfTheStepsThatAreLostAreForgotten) {
  StartJob();
  protocol::WorkerHeartbeat hash = BeatOf(0);
  hash.parameters_hash_step = 50;
  hash.parameters_sha256 = "x";
  ASSERT_TRUE(Beat(hash).ok());
  PassWithout(1, absl::Seconds(11));
  ComeAgain();
  hash = BeatOf(1);
  hash.parameters_hash_step = 50;
  // The hash differs because the steps ran again after the rollback and the model is not
  // deterministic.
  hash.parameters_sha256 = "y";
  EXPECT_EQ(Beat(hash)->phase, protocol::JobPhase::kRunning);
}

TEST_F(RollbackTest, LeavingIsOverWhenAllHaveLeft) {
  StartJob();
  CompleteCheckpoint(100);
  EXPECT_EQ(Leave(0, true)->phase, protocol::JobPhase::kRunning);
  EXPECT_EQ(Leave(0, true)->phase, protocol::JobPhase::kRunning)
      << "a repeated Leave gets the same answer";
  const protocol::WorkerHeartbeat first = BeatOf(0);
  PassWithout(1, absl::Seconds(11));
  const protocol::JobState state = *coordinator_.Leave({first, true, ""}, now_, &effects_);
  EXPECT_EQ(state.term, 1u) << "rank 1 was lost, so rank 0 must run again";
  ComeAgain();
  EXPECT_EQ(Leave(0, true)->phase, protocol::JobPhase::kRunning);
  EXPECT_EQ(Leave(1, true)->phase, protocol::JobPhase::kFinished);
  EXPECT_TRUE(records_.back().finished);
  EXPECT_EQ(records_.back().term, 1u);
  AcknowledgeAll();
  EXPECT_EQ(Beat(BeatOf(0))->phase, protocol::JobPhase::kFinished);
  EXPECT_FALSE(coordinator_.Drained()) << "rank 0 repeats its Leave until it learns the end";
  EXPECT_EQ(Leave(0, true)->phase, protocol::JobPhase::kFinished);
  EXPECT_TRUE(coordinator_.Drained());
}

TEST_F(RollbackTest, WhoGivesUpWithAnErrorStillEndsTheJob) {
  StartJob();
  CompleteCheckpoint(100);
  EXPECT_EQ(Leave(1, false, "out of memory")->phase, protocol::JobPhase::kFailed);
  EXPECT_FALSE(records_.back().finished);
}

CoordinatorOptions RollbackAfterARestart() {
  CoordinatorOptions options = WithCheckpoints({.job_name = "demo",
                                                .job_hash = 9,
                                                .software_version = "1",
                                                .world_size = 2,
                                                .shards = 2,
                                                .layout = {},
                                                .job_uid = 1234});
  options.run = protocol::RunRecord{.job_name = "demo", .job_uid = 77, .term = 3};
  options.checkpoints = TwoCheckpoints();
  return options;
}

class RestartTest : public RollbackTest {
 protected:
  RestartTest() : RollbackTest(RollbackAfterARestart()) {}
};

TEST_F(RestartTest, TheRunGoesOnInTheNextTerm) {
  ASSERT_EQ(records_.size(), 1u);
  EXPECT_EQ(records_[0],
            (protocol::RunRecord{
                .job_name = "demo", .job_uid = 77, .term = 4, .coordinator_incarnation = 1}));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  EXPECT_THAT(warnings_.back(), HasSubstr("the job goes back to step 200"));
  // A worker and a shard of an earlier term, which have not noticed the rollback.
  protocol::WorkerHeartbeat old{.sender = {.job_uid = 77, .term = 3, .rank = 1, .incarnation = 5},
                                .progress = {},
                                .parameters_hash_step = 0,
                                .parameters_sha256 = ""};
  EXPECT_EQ(Beat(old)->term, 4u);
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  EXPECT_EQ(LastOf<protocol::SuspendShard>(12)->term, 4u);
  Acknowledge(12, 900);  // This acknowledges a command of the previous coordinator.
  Join(1, JoinOf(0));
  Join(2, JoinOf(1));
  EXPECT_EQ(LastOf<protocol::StartShard>(12)->restore_step, 200u);
  Acknowledge(11, commands_.at(11).sequence);
  Acknowledge(12, uint64_t{3} << 32 | 9);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  Acknowledge(12, commands_.at(12).sequence);
  EXPECT_EQ(answers_.at(2)->term, 4u);
  EXPECT_EQ(answers_.at(2)->restore_step, 200u);
  EXPECT_EQ(answers_.at(2)->job_uid, 77u);
  CompleteCheckpoint(300);
  EXPECT_THAT(dropped_, ElementsAre(100));
}

TEST_F(RestartTest, AnotherModelThanTheCheckpointsIsRefused) {
  protocol::WorkerJoin other = JoinOf(0);
  other.table[0].shape = {9};
  Join(1, other);
  EXPECT_EQ(answers_.at(1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(AnswerText(1),
              AllOf(HasSubstr("different model than the checkpoint"), HasSubstr("after step 200")));
}

TEST_F(RestartTest, AWorkerThatIsOnItsWayBackHearsOfAFailure) {
  coordinator_.Fail("shard 0: disk gone", &effects_);
  Collect();
  EXPECT_FALSE(coordinator_.Drained());
  for (uint32_t rank = 0; rank < 2; ++rank) Join(1 + rank, JoinOf(rank));
  EXPECT_THAT(AnswerText(2), HasSubstr("disk gone"));
  EXPECT_TRUE(coordinator_.Drained());
}

CoordinatorOptions AtShards(CoordinatorOptions options) {
  options.checkpoint_interval = 100;
  options.checkpoints_at_shards = true;
  return options;
}

class StoreRollbackTest : public RollbackTest {
 protected:
  StoreRollbackTest() : RollbackTest(AtShards(ExampleOptions())) {}

  std::pair<std::vector<uint64_t>, uint64_t> KeptCheckpoints() const {
    const auto* keep = LastOf<protocol::KeepCheckpoints>(12);
    if (keep == nullptr) return {};
    return {keep->steps, keep->before};
  }
  // Completes a checkpoint whose parts of shard i and rank i are on server i.
  void Complete(uint64_t step) {
    for (uint32_t i = 0; i < 2; ++i) {
      protocol::CheckpointPart part = PartOf(protocol::ShardPartName(i, coordinator_.term()), step);
      part.server = i;
      ShardPart(seat_[i], part);
      part.name = protocol::WorkerPartName(i, coordinator_.term());
      EXPECT_TRUE(WorkerPart(i, part).ok());
    }
    Written(step);
  }

  ControlStreamId seat_[2] = {11, 12};
};

TEST_F(StoreRollbackTest, ServersAreToldWhatIsToStay) {
  StartJob();
  Complete(100);
  EXPECT_TRUE(manifests_.back().at_shards);
  EXPECT_EQ(KeptCheckpoints(), std::pair(std::vector<uint64_t>{100}, uint64_t{101}));
  Complete(200);
  Complete(300);
  EXPECT_EQ(KeptCheckpoints(), std::pair(std::vector<uint64_t>{200, 300}, uint64_t{301}));
  protocol::CheckpointPart bad = PartOf(protocol::WorkerPartName(1, 0), 400);
  bad.error = "no space left";
  EXPECT_TRUE(WorkerPart(1, bad).ok());
  EXPECT_EQ(KeptCheckpoints(), std::pair(std::vector<uint64_t>{200, 300}, uint64_t{401}));
  EXPECT_TRUE(Leave(0, true).ok());
  EXPECT_TRUE(Leave(1, true).ok());
  EXPECT_NE(LastOf<protocol::EndShard>(12), nullptr);
}

// Before a rollback, shard 0 wrote a part of step 200, and the job will reach that step again. A
// part of the new term may arrive before a command to remove old parts. Therefore the command for
// step 150 must not remove parts of step 200.
TEST_F(StoreRollbackTest, PartsOfStepsToComeAreNotSwept) {
  StartJob();
  Complete(100);
  protocol::CheckpointPart part = PartOf(protocol::ShardPartName(0, 0), 200);
  ShardPart(11, part);
  PassWithout(1, absl::Seconds(11));
  AcknowledgeAll();
  ComeAgain();
  Request(7);
  Complete(150);
  EXPECT_EQ(KeptCheckpoints(), std::pair(std::vector<uint64_t>{100, 150}, uint64_t{151}));
  Complete(200);
  EXPECT_EQ(KeptCheckpoints(), std::pair(std::vector<uint64_t>{150, 200}, uint64_t{201}));
}

TEST_F(StoreRollbackTest, AllLearnWhereTheirPartsAre) {
  StartJob();
  Complete(100);
  PassWithout(1, absl::Seconds(11));
  AcknowledgeAll();
  ComeAgain();
  const protocol::JoinGrant& grant = *answers_.at(2);
  EXPECT_EQ(grant.restore_world_size, 2u);
  ASSERT_EQ(grant.restore_parts.size(), 1u) << "each rank gets only its own part";
  EXPECT_EQ(grant.restore_parts[0].name, "worker-1-term-0.state");
  EXPECT_EQ(grant.restore_parts[0].server, 1u);
  EXPECT_EQ(grant.restore_parts[0].step, 100u);
  // A server that was absent learns of the checkpoints to keep with the next command.
  coordinator_.ShardDetached(12);
  Attach(13, ArrivalOf(1));
  seat_[1] = 13;
  Complete(200);
  EXPECT_EQ(LastOf<protocol::KeepCheckpoints>(13)->steps, (std::vector<uint64_t>{100, 200}));
}

TEST_F(StoreRollbackTest, AServerThatDoesNotExistHasNoPart) {
  StartJob();
  protocol::CheckpointPart part = PartOf(protocol::WorkerPartName(1, 0), 100);
  part.server = 2;
  EXPECT_EQ(WorkerPart(1, part).code(), absl::StatusCode::kInvalidArgument);
}

// Returns the options of a job of two ranks that restores a checkpoint of three ranks.
CoordinatorOptions OfThreeRanks(CoordinatorOptions options) {
  options = AtShards(std::move(options));
  options.run = protocol::RunRecord{.job_name = "demo", .job_uid = 77, .term = 3};
  protocol::CheckpointManifest manifest;
  manifest.job_uid = 77;
  manifest.term = 3;
  manifest.step = 100;
  manifest.world_size = 3;
  manifest.shards = 2;
  manifest.table_hash = protocol::HashTensorTable(JoinOf(0).table);
  manifest.at_shards = true;
  for (const std::string& name : {protocol::ShardPartName(0, 3), protocol::ShardPartName(1, 3),
                                  protocol::WorkerPartName(0, 3), protocol::WorkerPartName(1, 3),
                                  protocol::WorkerPartName(2, 3)}) {
    manifest.parts.push_back({.term = 3, .step = 100, .name = name, .error = ""});
  }
  options.checkpoints = {manifest};
  return options;
}

class OtherRanksTest : public RollbackTest {
 protected:
  OtherRanksTest() : RollbackTest(OfThreeRanks(ExampleOptions())) {}
};

TEST_F(OtherRanksTest, GoOnWithThePartsOfAll) {
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  AcknowledgeAll();
  Join(1, JoinOf(0));
  Join(2, JoinOf(1));
  ASSERT_NE(LastOf<protocol::StartShard>(12), nullptr);
  EXPECT_EQ(LastOf<protocol::StartShard>(12)->restore_world_size, 3u);
  EXPECT_EQ(LastOf<protocol::StartShard>(12)->restore_part.name, "shard-1-term-3.state");
  AcknowledgeAll();
  ASSERT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  std::vector<std::string> names;
  for (const protocol::CheckpointPart& part : answers_.at(2)->restore_parts)
    names.push_back(part.name);
  EXPECT_THAT(names, ElementsAre("worker-0-term-3.state", "worker-1-term-3.state",
                                 "worker-2-term-3.state"));
  EXPECT_EQ(answers_.at(2)->restore_world_size, 3u);
  EXPECT_EQ(answers_.at(2)->world_size, 2u);
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("had 3 workers"), HasSubstr("with 2 after step 100")));
}

}  // namespace
}  // namespace sluice::server
