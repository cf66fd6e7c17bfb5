// Tests how workers join and leave in a job with membership `elastic`.
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
using ::testing::Not;
using ::testing::SizeIs;

CoordinatorOptions WithElastic(CoordinatorOptions options) {
  options = WithRepair(std::move(options));
  options.world_size = 4;
  options.elastic = {.start = 2, .least = 1};
  return options;
}

// The job begins with two ranks (tokens 1 and 2) of at most four. The minimum is one rank.
class ElasticTest : public RepairTest {
 protected:
  ElasticTest() : ElasticTest(WithElastic(ExampleOptions())) {}
  explicit ElasticTest(CoordinatorOptions options) : RepairTest(std::move(options)) {}

  void AcknowledgeMembersEverywhere() {
    AcknowledgeMembers(11);
    AcknowledgeMembers(12);
  }
  uint64_t Incarnation(JoinToken token) { return answers_.at(token)->incarnation; }
};

TEST_F(ElasticTest, BeginsWithAsManyAsTheJobSays) {
  StartJob();
  EXPECT_EQ(answers_.at(1)->world_size, 4u);
  EXPECT_FALSE(answers_.at(1)->late_joiner);
  EXPECT_THAT(StartOf(11)->incarnations, ElementsAre(Incarnation(1), Incarnation(2), 0u, 0u));
}

TEST_F(ElasticTest, AnyRanksMayBegin) {
  Join(1, JoinOf(3));
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  EXPECT_THAT(notices_.back(), HasSubstr("waiting for 1 of 2 workers"));
  Join(2, JoinOf(1));
  AcknowledgeAll();
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_THAT(StartOf(11)->incarnations, ElementsAre(0u, Incarnation(2), 0u, Incarnation(1)));
}

TEST_F(ElasticTest, GoesOnWithoutWhoIsLost) {
  StartJob();
  protocol::WorkerHeartbeat beat = BeatOfHolder(2, 40);
  beat.progress.residual_energy = 2.5;
  ASSERT_TRUE(Beat(beat).ok());
  PassWith({1}, {11, 12}, absl::Seconds(12), 50);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_EQ(coordinator_.term(), 0u);
  ASSERT_NE(MembersOf(11), nullptr);
  EXPECT_EQ(MembersOf(11)->generation, 2u);
  EXPECT_THAT(MembersOf(11)->incarnations, ElementsAre(Incarnation(1), 0u, 0u, 0u));
  EXPECT_THAT(warnings_.back(), AllOf(HasSubstr("rank 1"), HasSubstr("did not report for 10s"),
                                      HasSubstr("continues with 1 workers")));
  EXPECT_EQ(Now().lost_workers, 1u);
  EXPECT_EQ(Now().lost_residual_energy, 2.5);
  EXPECT_EQ(records_.back().members[1].incarnation, 0u);
  EXPECT_FALSE(Beat(BeatOfHolder(2, 50)).ok()) << "the removed worker is fenced";
}

TEST_F(ElasticTest, WaitsWhenTooFewAreLeft) {
  StartJob();
  PassWith({}, {11, 12}, absl::Seconds(12), 50);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_EQ(MembersOf(11), nullptr);
  EXPECT_THAT(warnings_.back(), HasSubstr("wait up to"));
  EXPECT_TRUE(Beat(BeatOfHolder(1, 50)).ok()) << "the worker has returned";
  Tick(absl::Milliseconds(500));
  ASSERT_NE(MembersOf(11), nullptr) << "one worker is enough";
  EXPECT_THAT(MembersOf(11)->incarnations, ElementsAre(Incarnation(1), 0u, 0u, 0u));
}

TEST_F(ElasticTest, ANewcomerLearnsFromTheNewestCheckpoint) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  Join(3, JoinOf(2));
  EXPECT_FALSE(answers_.contains(3)) << "the shards do not know the newcomer yet";
  ASSERT_NE(MembersOf(12), nullptr);
  EXPECT_EQ(MembersOf(12)->generation, 2u);
  EXPECT_THAT(MembersOf(12)->incarnations,
              ElementsAre(Incarnation(1), Incarnation(2), ::testing::Ne(0u), 0u));
  AcknowledgeMembersEverywhere();
  ASSERT_TRUE(answers_.contains(3));
  EXPECT_TRUE(answers_.at(3)->late_joiner);
  EXPECT_EQ(answers_.at(3)->first_step, 101u);
  EXPECT_EQ(answers_.at(3)->restore_step, 100u);
  EXPECT_EQ(answers_.at(3)->generation, 2u);
  EXPECT_EQ(Now().rollbacks, 0u);
}

TEST_F(ElasticTest, ALearnerThatWasNotToldOfItBeginsTheNextTermAsAllOthers) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  Join(3, JoinOf(2));
  Attach(13, ArrivalOf(1, /*incarnation=*/60));
  ASSERT_EQ(coordinator_.term(), 1u) << "a shard was lost before all shards knew the newcomer";
  Join(4, JoinOf(0));
  Join(5, JoinOf(1));
  AcknowledgeAll();
  ASSERT_TRUE(answers_.contains(3));
  EXPECT_EQ(answers_.at(3)->term, 1u);
  EXPECT_FALSE(answers_.at(3)->late_joiner);
}

// With `keep: 1`, the next checkpoint becomes complete while the newcomer still reads the previous
// one.
class KeepOneTest : public RepairTest {
 protected:
  static CoordinatorOptions KeepOne() {
    CoordinatorOptions options = WithElastic(ExampleOptions());
    options.checkpoint_keep = 1;
    return options;
  }
  KeepOneTest() : RepairTest(KeepOne()) {
    StartJob();
    CompleteCheckpoint(100);
    PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
    Join(3, JoinOf(2));
    AcknowledgeMembers(11);
    AcknowledgeMembers(12);
  }
  // Sends a heartbeat of the newcomer. Later checkpoints do not need the newcomer's part.
  void BeatOfNewcomer(uint64_t restoring_step) {
    protocol::WorkerHeartbeat beat = BeatOfHolder(3, 100);
    beat.restoring_step = restoring_step;
    ASSERT_TRUE(Beat(beat).ok());
  }
};

TEST_F(KeepOneTest, WhatANewcomerReadsIsNotRemoved) {
  EXPECT_EQ(answers_.at(3)->restore_step, 100u);
  CompleteCheckpoint(200);
  EXPECT_THAT(dropped_, Not(Contains(100u))) << "the newcomer may not have begun to read it";
  BeatOfNewcomer(100);
  CompleteCheckpoint(300);
  EXPECT_THAT(dropped_, AllOf(Not(Contains(100u)), Contains(200u)));
  BeatOfNewcomer(0);
  CompleteCheckpoint(400);
  EXPECT_THAT(dropped_, AllOf(Contains(100u), Contains(300u)));
}

TEST_F(KeepOneTest, WhatANewcomerReadIsRemovedOnceItIsLost) {
  CompleteCheckpoint(200);
  PassWith({1, 2}, {11, 12}, absl::Seconds(12), 210);
  CompleteCheckpoint(300);
  EXPECT_THAT(dropped_, Contains(100u));
}

TEST_F(ElasticTest, ANewcomerBeforeTheFirstCheckpointWaitsForOne) {
  StartJob();
  ForgetCommands();
  Join(3, JoinOf(2));
  EXPECT_EQ(MembersOf(11), nullptr);
  ASSERT_NE(NameOf(11), nullptr) << "the newcomer needs a checkpoint";
  EXPECT_EQ(NameOf(11)->minimum_step, 1u);
  CompleteCheckpoint(7);
  ASSERT_NE(MembersOf(11), nullptr);
  AcknowledgeMembersEverywhere();
  EXPECT_EQ(answers_.at(3)->restore_step, 7u);
}

TEST_F(ElasticTest, WhoComesWhenShardsAreToldWhoBeginsIsANewcomer) {
  Join(1, JoinOf(0));
  Join(2, JoinOf(1));
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  Join(3, JoinOf(2));
  AcknowledgeAll();
  ASSERT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_TRUE(answers_.contains(1));
  EXPECT_FALSE(answers_.contains(3)) << "no shard knows the newcomer";
  CompleteCheckpoint(7);
  AcknowledgeMembersEverywhere();
  ASSERT_TRUE(answers_.contains(3));
  EXPECT_TRUE(answers_.at(3)->late_joiner);
}

// Two generations begin in one batch of effects. Each generation must be recorded before it is
// announced, because a coordinator may only forget a generation that was not announced.
TEST_F(ElasticTest, TwoGenerationsAtOnceAreOnDiskInTheirOrder) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1}, {11, 12}, absl::Milliseconds(9800), 140);
  Coordinator::Effects effects;
  coordinator_.Join(3, JoinOf(2), now_, &effects);
  now_ += absl::Milliseconds(400);
  coordinator_.Tick(now_, &effects);
  uint32_t on_disk = 0;
  uint32_t told = 0;
  for (const CoordinatorEffect& effect : effects) {
    if (const auto* record = std::get_if<PersistRun>(&effect)) on_disk = record->record.generation;
    const auto* command = std::get_if<CommandShard>(&effect);
    if (command == nullptr || !std::holds_alternative<protocol::SetMembers>(command->command))
      continue;
    told = std::get<protocol::SetMembers>(command->command).generation;
    EXPECT_EQ(told, on_disk);
  }
  EXPECT_GE(told, 2u);
}

TEST_F(ElasticTest, BeforeTheFirstCheckpointTooFewBeginAnew) {
  StartJob();
  PassWith({}, {11, 12}, absl::Seconds(12), 50);
  ASSERT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning) << "the job waits for workers";
  Join(3, JoinOf(1, /*nonce=*/77));
  EXPECT_EQ(coordinator_.term(), 0u);
  Tick(absl::Milliseconds(500));
  EXPECT_EQ(coordinator_.term(), 1u) << "no worker can write a checkpoint for the newcomer";
  EXPECT_THAT(warnings_.back(), HasSubstr("fewer than min_workers are left"));
}

TEST_F(ElasticTest, AWorkerThatWasStartedAgainComesBackAsALearner) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  Join(3, JoinOf(1, /*nonce=*/77));
  PassWith({1}, {11, 12}, absl::Seconds(2), 141);
  EXPECT_FALSE(answers_.contains(3)) << "the rank's previous process may be alive";
  PassWith({1}, {11, 12}, absl::Seconds(2), 142);
  AcknowledgeMembersEverywhere();
  ASSERT_TRUE(answers_.contains(3));
  EXPECT_TRUE(answers_.at(3)->late_joiner);
  EXPECT_THAT(warnings_, Contains(AllOf(HasSubstr("rank 1"), HasSubstr("is replaced"))));
  EXPECT_EQ(Now().lost_workers, 1u);
  EXPECT_EQ(Now().rollbacks, 0u);
}

TEST_F(ElasticTest, WhoGivesUpIsMissedByNobody) {
  StartJob();
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_THAT(warnings_.back(), HasSubstr("left: got SIGTERM"));
  EXPECT_TRUE(Leave(0, /*finished=*/true).ok());
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFinished);
}

// The worker that has finished may die before it repeats its Leave.
TEST_F(ElasticTest, EndsWhenTheOnlyWorkerThatHasNotFinishedIsLost) {
  StartJob();
  EXPECT_TRUE(Leave(0, /*finished=*/true).ok());
  PassWith({}, {11, 12}, absl::Seconds(12), 50);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFinished);
  EXPECT_TRUE(records_.back().finished);
}

TEST_F(ElasticTest, TheLastOneThatGivesUpIsAwaitedLikeOneThatIsLost) {
  StartJob();
  CompleteCheckpoint(100);
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  EXPECT_TRUE(Leave(0, /*finished=*/false, "out of disk").ok());
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  Tick(absl::Milliseconds(500));
  EXPECT_THAT(warnings_, Contains(AllOf(HasSubstr("rank 0"), HasSubstr("left: out of disk"),
                                        HasSubstr("wait up to 10m (server.rejoin_timeout)"))));
  Join(7, JoinOf(3));
  AcknowledgeMembersEverywhere();
  EXPECT_TRUE(answers_.at(7)->late_joiner);
}

TEST_F(ElasticTest, ACheckpointIsCompleteWithoutWhoIsGone) {
  StartJob();
  coordinator_.ShardNamedCheckpoint(11, 100);
  EXPECT_TRUE(WorkerPart(0, PartOf(protocol::WorkerPartName(0, 0), 100)).ok());
  for (uint32_t shard : {0u, 1u})
    ShardPart(11 + shard, PartOf(protocol::ShardPartName(shard, 0), 100));
  EXPECT_THAT(manifests_, IsEmpty());
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  ASSERT_THAT(manifests_, SizeIs(1));
  EXPECT_EQ(manifests_[0].world_size, 4u);
  EXPECT_THAT(manifests_[0].parts, SizeIs(3));
}

TEST_F(ElasticTest, ANewcomersPartTakesThePlaceOfItsPredecessors) {
  StartJob();
  CompleteCheckpoint(50);
  coordinator_.ShardNamedCheckpoint(11, 100);
  EXPECT_TRUE(WorkerPart(1, PartOf(protocol::WorkerPartName(1, 0), 100)).ok());
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  Join(3, JoinOf(1, /*nonce=*/77));
  AcknowledgeMembersEverywhere();
  EXPECT_TRUE(WorkerPart(0, PartOf(protocol::WorkerPartName(0, 0), 100)).ok());
  for (uint32_t shard : {0u, 1u})
    ShardPart(11 + shard, PartOf(protocol::ShardPartName(shard, 0), 100));
  const protocol::CheckpointManifest& manifest = manifests_.back();
  EXPECT_EQ(manifest.step, 100u);
  EXPECT_THAT(manifest.parts, SizeIs(3))
      << "the newcomer may overwrite its part, which is not listed";
}

TEST_F(ElasticTest, ACheckpointHasSomebodysState) {
  StartJob();
  CompleteCheckpoint(50);
  coordinator_.ShardNamedCheckpoint(11, 100);
  Join(3, JoinOf(2));
  AcknowledgeMembersEverywhere();
  for (uint32_t shard : {0u, 1u})
    ShardPart(11 + shard, PartOf(protocol::ShardPartName(shard, 0), 100));
  EXPECT_TRUE(Leave(0, /*finished=*/false, "got SIGTERM").ok());
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  EXPECT_EQ(manifests_.back().step, 50u);
  EXPECT_TRUE(WorkerPart(2, PartOf(protocol::WorkerPartName(2, 0), 100)).ok());
  EXPECT_EQ(manifests_.back().step, 100u);
}

TEST_F(ElasticTest, TheParametersOfTheStartAreNotLostWithTheirGiver) {
  protocol::WorkerJoin other = JoinOf(1);
  other.parameters_sha256 = "another";
  Join(1, JoinOf(0));
  Join(2, other);
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  AcknowledgeAll();
  ASSERT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  ASSERT_FALSE(answers_.at(1)->parameters_agree);
  EXPECT_THAT(answers_.at(1)->members, ElementsAre(0, 1));
  EXPECT_TRUE(Leave(0, /*finished=*/false, "got SIGTERM").ok());
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering);
  EXPECT_EQ(MembersOf(11), nullptr);
}

TEST_F(ElasticTest, ALostShardTakesARollbackToWhichThoseWhoWereHereComeBack) {
  StartJob();
  CompleteCheckpoint(100);
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kRollback);
  EXPECT_THAT(Now().recovery_reason, HasSubstr("elastic"));
  Attach(13, ArrivalOf(1, 60));
  EXPECT_EQ(coordinator_.term(), 1u);
  Join(5, JoinOf(0));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRecovering)
      << "the job had two members and waits for both";
  Join(6, JoinOf(3));
  EXPECT_THAT(StartOf(13)->incarnations, SizeIs(4));
  EXPECT_EQ(StartOf(13)->restore_step, 100u);
  EXPECT_FALSE(StartOf(13)->replay);
}

TEST_F(ElasticTest, AfterAWhileFewerDo) {
  StartJob();
  CompleteCheckpoint(100);
  Attach(13, ArrivalOf(1, 60));
  Join(5, JoinOf(0));
  Pass(absl::Seconds(19));
  EXPECT_EQ(StartOf(13), nullptr);
  Pass(absl::Seconds(2));
  ASSERT_NE(StartOf(13), nullptr);
  EXPECT_EQ(StartOf(13)->incarnations[0] != 0, true);
  EXPECT_EQ(StartOf(13)->incarnations[1], 0u);
}

// Both initial ranks are needed; the maximum is four ranks.
class ElasticAtTheLeastTest : public ElasticTest {
 protected:
  ElasticAtTheLeastTest() : ElasticTest(AtTheLeast()) {}

  static CoordinatorOptions AtTheLeast() {
    CoordinatorOptions options = WithElastic(ExampleOptions());
    options.elastic = {.start = 2, .least = 2};
    return options;
  }
};

TEST_F(ElasticAtTheLeastTest, WhoGivesUpIsAwaitedLikeOneThatIsLost) {
  StartJob();
  CompleteCheckpoint(100);
  const protocol::WorkerHeartbeat late = BeatOfHolder(2, 110);
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  Tick(absl::Milliseconds(500));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_EQ(MembersOf(11), nullptr) << "no member is removed";
  EXPECT_TRUE(Now().members[1].lost);
  EXPECT_THAT(warnings_, Contains(AllOf(HasSubstr("rank 1"), HasSubstr("left: got SIGTERM"),
                                        HasSubstr("wait up to 10m (server.rejoin_timeout)"))));
  const absl::Status refused = Beat(late).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused))
      << "the late heartbeat must be refused: " << refused;
  EXPECT_TRUE(Now().members[1].lost);
}

TEST_F(ElasticAtTheLeastTest, ANewcomerTakesAtOnceTheRankOfWhoGaveUp) {
  StartJob();
  CompleteCheckpoint(100);
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  Tick(absl::Milliseconds(500));
  Join(7, JoinOf(1, /*nonce=*/77));
  Tick(absl::Milliseconds(500));
  AcknowledgeMembersEverywhere();
  ASSERT_TRUE(answers_.contains(7)) << "the rank's previous process is certainly gone";
  EXPECT_TRUE(answers_.at(7)->late_joiner);
  EXPECT_THAT(MembersOf(11)->incarnations, ElementsAre(Incarnation(1), Incarnation(7), 0u, 0u));
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_EQ(Now().lost_workers, 1u);
}

TEST_F(ElasticAtTheLeastTest, ANewcomerOfAnotherRankLetsWhoGaveUpGo) {
  StartJob();
  CompleteCheckpoint(100);
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  Join(7, JoinOf(2));
  Tick(absl::Milliseconds(500));
  AcknowledgeMembersEverywhere();
  EXPECT_THAT(MembersOf(11)->incarnations, ElementsAre(Incarnation(1), 0u, Incarnation(7), 0u));
  EXPECT_THAT(warnings_, Contains(AllOf(HasSubstr("rank 1"), HasSubstr("left: got SIGTERM"),
                                        HasSubstr("continues with 2 workers"))));
  EXPECT_EQ(coordinator_.term(), 0u);
}

TEST_F(ElasticAtTheLeastTest, BeforeTheFirstCheckpointANewcomerOfAnyRankBeginsAnew) {
  StartJob();
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  Tick(absl::Milliseconds(500));
  EXPECT_EQ(coordinator_.term(), 0u) << "rank 1 may still get a successor";
  Join(7, JoinOf(2));
  Tick(absl::Milliseconds(500));
  EXPECT_EQ(coordinator_.term(), 1u) << "no worker can write a checkpoint for the newcomer";
  EXPECT_THAT(warnings_.back(), HasSubstr("fewer than min_workers are left"));
}

TEST_F(ElasticAtTheLeastTest, WhereNobodyComesTheEndSaysWhyTheOneLeft) {
  StartJob();
  CompleteCheckpoint(100);
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  PassWith({1}, {11, 12}, absl::Seconds(590), 110);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  PassWith({1}, {11, 12}, absl::Seconds(20), 110);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
  EXPECT_THAT(coordinator_.failure(),
              AllOf(HasSubstr("waited 10m: rank 1"), HasSubstr("which left (got SIGTERM)"),
                    HasSubstr("server.rejoin_timeout")));
}

TEST_F(ElasticTest, ANewcomerLeavesThePartsOfOthersInPlace) {
  StartJob();
  CompleteCheckpoint(50);
  coordinator_.ShardNamedCheckpoint(11, 100);
  EXPECT_TRUE(WorkerPart(0, PartOf(protocol::WorkerPartName(0, 0), 100)).ok());
  for (uint32_t shard : {0u, 1u})
    ShardPart(11 + shard, PartOf(protocol::ShardPartName(shard, 0), 100));
  Join(3, JoinOf(2));
  AcknowledgeMembersEverywhere();
  ASSERT_TRUE(answers_.contains(3));
  EXPECT_TRUE(WorkerPart(1, PartOf(protocol::WorkerPartName(1, 0), 100)).ok());
  EXPECT_EQ(manifests_.back().step, 100u) << "rank 0 has already given its part";
}

TEST_F(ElasticTest, APartThatANewcomerCannotWriteCostsNoCompleteCheckpoint) {
  StartJob();
  CompleteCheckpoint(50);
  Join(3, JoinOf(2));
  AcknowledgeMembersEverywhere();
  CompleteCheckpoint(100);
  protocol::CheckpointPart failed = PartOf(protocol::WorkerPartName(2, 0), 100);
  failed.error = "no space left on device";
  EXPECT_TRUE(WorkerPart(2, failed).ok());
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_TRUE(coordinator_.HasCheckpoint(100));
}

TEST_F(ElasticTest, APartThatANewcomerCannotReadTakesTheCheckpointBefore) {
  StartJob();
  CompleteCheckpoint(50);
  CompleteCheckpoint(100);
  Join(3, JoinOf(2));
  AcknowledgeMembersEverywhere();
  protocol::CheckpointPart damaged = PartOf(protocol::WorkerPartName(2, 0), 100);
  damaged.error = "section 2: the checksum differs";
  damaged.unreadable = true;
  EXPECT_TRUE(WorkerPart(2, damaged).ok());
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_FALSE(coordinator_.HasCheckpoint(100));
  EXPECT_TRUE(coordinator_.HasCheckpoint(50));
}

// A newcomer is told to restore a checkpoint, but newer ones replace it meanwhile. The newcomer's
// report must not cause a rollback, because the newcomer can ask again.
TEST_F(ElasticTest, ACheckpointThatIsNoLongerKeptIsNoReasonToGoBack) {
  StartJob();
  CompleteCheckpoint(100);
  Attach(13, ArrivalOf(1, 60));  // Causes a rollback to this checkpoint.
  answers_.clear();
  Join(1, JoinOf(0, /*nonce=*/500));
  Join(2, JoinOf(1, /*nonce=*/501));
  AcknowledgeAll();
  ASSERT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  Join(3, JoinOf(2));
  AcknowledgeMembers(11);
  AcknowledgeMembers(13);
  ASSERT_EQ(answers_.at(3)->restore_step, 100u);
  // All members have read the checkpoint, so it is no longer kept for them.
  for (const JoinToken holder : {1, 2, 3}) EXPECT_TRUE(Beat(BeatOfHolder(holder, 100)).ok());
  for (const uint64_t step : {200, 300}) {
    for (const uint32_t rank : {0u, 1u}) {
      EXPECT_TRUE(WorkerPart(rank, PartOf(protocol::WorkerPartName(rank, 1), step)).ok());
    }
    ShardPart(11, PartOf(protocol::ShardPartName(0, 1), step));
    ShardPart(13, PartOf(protocol::ShardPartName(1, 1), step));
    if (manifests_.back().step != step) {
      EXPECT_TRUE(WorkerPart(2, PartOf(protocol::WorkerPartName(2, 1), step)).ok());
    }
    Written(step);
  }
  ASSERT_FALSE(coordinator_.HasCheckpoint(100));
  protocol::CheckpointPart gone = PartOf(protocol::WorkerPartName(2, 1), 100);
  gone.error = "shard-0 has it no longer";
  gone.unreadable = true;
  EXPECT_TRUE(WorkerPart(2, gone).ok());
  EXPECT_EQ(coordinator_.term(), 1u);
}

TEST_F(ElasticTest, WhereCheckpointsFailANewcomerAsksForOneLessAndLessOften) {
  StartJob();
  Join(3, JoinOf(2));
  ASSERT_NE(NameOf(11), nullptr);
  uint64_t step = 0;
  const auto seconds_until_asked = [&](int limit) {
    protocol::CheckpointPart failed = PartOf(protocol::WorkerPartName(0, 0), ++step);
    failed.error = "no space left on device";
    EXPECT_TRUE(WorkerPart(0, failed).ok());
    ForgetCommands();
    for (int second = 0; second < limit; ++second) {
      PassWith({1, 2}, {11, 12}, absl::Seconds(1), step);
      if (NameOf(11) != nullptr && NameOf(11)->minimum_step == 1) return second;
    }
    return limit;
  };
  const int first = seconds_until_asked(1000);
  EXPECT_GE(first, 9) << "a lease must pass before the next request";
  EXPECT_LE(first, 11);
  EXPECT_GE(seconds_until_asked(1000), first + 9);
  for (int times = 0; times < 10; ++times) seconds_until_asked(1000);
  EXPECT_LE(seconds_until_asked(1000), 165) << "the disk may have been repaired";
  CompleteCheckpoint(100);
  AcknowledgeMembersEverywhere();
  EXPECT_TRUE(answers_.contains(3));
}

TEST_F(ElasticTest, ParametersAreComparedAmongThoseWhoAreHere) {
  StartJob();
  protocol::WorkerHeartbeat beat = BeatOfHolder(1, 100);
  beat.parameters_hash_step = 100;
  beat.parameters_sha256 = "a";
  EXPECT_TRUE(Beat(beat).ok());
  beat = BeatOfHolder(2, 100);
  beat.parameters_hash_step = 100;
  beat.parameters_sha256 = "b";
  (void)Beat(beat);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
}

}  // namespace
}  // namespace sluice::server
