// How workers come and go in a job of membership `elastic`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/repair_fixture.h"

namespace sluice {
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

// Two of at most four ranks begin (tokens 1 and 2); the least is one.
class ElasticTest : public RepairTest {
 protected:
  ElasticTest() : RepairTest(WithElastic(ExampleOptions())) {}

  void AcknowledgeMembersEverywhere() {
    AcknowledgeMembers(11);
    AcknowledgeMembers(12);
  }
  uint64_t Incarnation(JoinToken token) { return answers_.at(token)->incarnation; }
};

TEST_F(ElasticTest, BeginsWithAsManyAsTheJobSays) {
  StartJob();
  EXPECT_EQ(answers_.at(1)->world_size, 4u);
  EXPECT_FALSE(answers_.at(1)->learner);
  EXPECT_THAT(StartOf(11)->incarnations, ElementsAre(Incarnation(1), Incarnation(2), 0u, 0u));
}

TEST_F(ElasticTest, AnyRanksMayBegin) {
  Join(1, JoinOf(3));
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  EXPECT_THAT(notices_.back(), HasSubstr("waiting for 1 of 2 workers"));
  Join(2, JoinOf(1));
  AcknowledgeAll();
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
  EXPECT_THAT(StartOf(11)->incarnations, ElementsAre(0u, Incarnation(2), 0u, Incarnation(1)));
}

TEST_F(ElasticTest, GoesOnWithoutWhoIsLost) {
  StartJob();
  WorkerHeartbeat beat = BeatOfHolder(2, 40);
  beat.progress.residual_energy = 2.5;
  ASSERT_TRUE(Beat(beat).ok());
  PassWith({1}, {11, 12}, absl::Seconds(12), 50);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
  EXPECT_EQ(coordinator_.term(), 0u);
  ASSERT_NE(MembersOf(11), nullptr);
  EXPECT_EQ(MembersOf(11)->generation, 2u);
  EXPECT_THAT(MembersOf(11)->incarnations, ElementsAre(Incarnation(1), 0u, 0u, 0u));
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("rank 1 (host a, pid 121) was not heard of for 10s"),
                    HasSubstr("goes on with 1 workers")));
  EXPECT_EQ(Now().lost_workers, 1u);
  EXPECT_EQ(Now().lost_residual_energy, 2.5);
  EXPECT_EQ(records_.back().members[1].incarnation, 0u);
  EXPECT_FALSE(Beat(BeatOfHolder(2, 50)).ok()) << "it is shut out";
}

TEST_F(ElasticTest, WaitsWhenTooFewAreLeft) {
  StartJob();
  PassWith({}, {11, 12}, absl::Seconds(12), 50);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
  EXPECT_EQ(MembersOf(11), nullptr);
  EXPECT_THAT(warnings_.back(), HasSubstr("wait up to"));
  EXPECT_TRUE(Beat(BeatOfHolder(1, 50)).ok()) << "it is back";
  Tick(absl::Milliseconds(500));
  ASSERT_NE(MembersOf(11), nullptr) << "one is enough";
  EXPECT_THAT(MembersOf(11)->incarnations, ElementsAre(Incarnation(1), 0u, 0u, 0u));
}

TEST_F(ElasticTest, ANewcomerLearnsFromTheNewestCheckpoint) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  Join(3, JoinOf(2));
  EXPECT_FALSE(answers_.contains(3)) << "shards do not know it yet";
  ASSERT_NE(MembersOf(12), nullptr);
  EXPECT_EQ(MembersOf(12)->generation, 2u);
  EXPECT_THAT(MembersOf(12)->incarnations,
              ElementsAre(Incarnation(1), Incarnation(2), ::testing::Ne(0u), 0u));
  AcknowledgeMembersEverywhere();
  ASSERT_TRUE(answers_.contains(3));
  EXPECT_TRUE(answers_.at(3)->learner);
  EXPECT_EQ(answers_.at(3)->first_step, 101u);
  EXPECT_EQ(answers_.at(3)->restore_step, 100u);
  EXPECT_EQ(answers_.at(3)->generation, 2u);
  EXPECT_EQ(Now().rollbacks, 0u);
}

// With `keep: 1`: the next one is complete while the newcomer still reads.
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
  // A heartbeat of the newcomer, whose part of later checkpoints is not waited for.
  void BeatOfNewcomer(uint64_t restoring_step) {
    WorkerHeartbeat beat = BeatOfHolder(3, 100);
    beat.restoring_step = restoring_step;
    ASSERT_TRUE(Beat(beat).ok());
  }
};

TEST_F(KeepOneTest, WhatANewcomerReadsIsNotRemoved) {
  EXPECT_EQ(answers_.at(3)->restore_step, 100u);
  CompleteCheckpoint(200);
  EXPECT_THAT(dropped_, Not(Contains(100u))) << "it may not have begun to read";
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
  ASSERT_NE(NameOf(11), nullptr) << "one is asked for";
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
  ASSERT_EQ(coordinator_.phase(), JobPhase::kRunning);
  EXPECT_TRUE(answers_.contains(1));
  EXPECT_FALSE(answers_.contains(3)) << "no shard knows it";
  CompleteCheckpoint(7);
  AcknowledgeMembersEverywhere();
  ASSERT_TRUE(answers_.contains(3));
  EXPECT_TRUE(answers_.at(3)->learner);
}

// Its own coordinator may forget a generation only while nobody has heard of it.
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
    if (command == nullptr || !std::holds_alternative<SetMembers>(command->command)) continue;
    told = std::get<SetMembers>(command->command).generation;
    EXPECT_EQ(told, on_disk);
  }
  EXPECT_GE(told, 2u);
}

TEST_F(ElasticTest, BeforeTheFirstCheckpointTooFewBeginAnew) {
  StartJob();
  PassWith({}, {11, 12}, absl::Seconds(12), 50);
  ASSERT_EQ(coordinator_.phase(), JobPhase::kRunning) << "it waits";
  Join(3, JoinOf(1, /*nonce=*/77));
  EXPECT_EQ(coordinator_.term(), 0u);
  Tick(absl::Milliseconds(500));
  EXPECT_EQ(coordinator_.term(), 1u) << "nobody can write what it could begin with";
  EXPECT_THAT(warnings_.back(), HasSubstr("fewer than min_workers are left"));
}

TEST_F(ElasticTest, AWorkerThatWasStartedAgainComesBackAsALearner) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  Join(3, JoinOf(1, /*nonce=*/77));
  PassWith({1}, {11, 12}, absl::Seconds(2), 141);
  EXPECT_FALSE(answers_.contains(3)) << "the one before may be alive";
  PassWith({1}, {11, 12}, absl::Seconds(2), 142);
  AcknowledgeMembersEverywhere();
  ASSERT_TRUE(answers_.contains(3));
  EXPECT_TRUE(answers_.at(3)->learner);
  EXPECT_THAT(warnings_, Contains(HasSubstr("rank 1 (host a, pid 121) is replaced")));
  EXPECT_EQ(Now().lost_workers, 1u);
  EXPECT_EQ(Now().rollbacks, 0u);
}

TEST_F(ElasticTest, WhoGivesUpIsMissedByNobody) {
  StartJob();
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRunning);
  EXPECT_THAT(warnings_.back(), HasSubstr("left: got SIGTERM"));
  EXPECT_TRUE(Leave(0, /*finished=*/true).ok());
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFinished);
}

TEST_F(ElasticTest, TheLastOneThatGivesUpEndsTheJob) {
  StartJob();
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  EXPECT_TRUE(Leave(0, /*finished=*/false, "out of disk").ok());
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFailed);
  EXPECT_THAT(coordinator_.failure(), HasSubstr("out of disk"));
}

TEST_F(ElasticTest, ACheckpointIsCompleteWithoutWhoIsGone) {
  StartJob();
  coordinator_.ShardNamedCheckpoint(11, 100);
  EXPECT_TRUE(WorkerPart(0, PartOf(WorkerPartName(0, 0), 100)).ok());
  for (uint32_t shard : {0u, 1u}) ShardPart(11 + shard, PartOf(ShardPartName(shard, 0), 100));
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
  EXPECT_TRUE(WorkerPart(1, PartOf(WorkerPartName(1, 0), 100)).ok());
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  Join(3, JoinOf(1, /*nonce=*/77));
  AcknowledgeMembersEverywhere();
  EXPECT_TRUE(WorkerPart(0, PartOf(WorkerPartName(0, 0), 100)).ok());
  for (uint32_t shard : {0u, 1u}) ShardPart(11 + shard, PartOf(ShardPartName(shard, 0), 100));
  const CheckpointManifest& manifest = manifests_.back();
  EXPECT_EQ(manifest.step, 100u);
  EXPECT_THAT(manifest.parts, SizeIs(3)) << "the file that it may write over is not listed";
}

TEST_F(ElasticTest, ACheckpointHasSomebodysState) {
  StartJob();
  CompleteCheckpoint(50);
  coordinator_.ShardNamedCheckpoint(11, 100);
  Join(3, JoinOf(2));
  AcknowledgeMembersEverywhere();
  for (uint32_t shard : {0u, 1u}) ShardPart(11 + shard, PartOf(ShardPartName(shard, 0), 100));
  EXPECT_TRUE(Leave(0, /*finished=*/false, "got SIGTERM").ok());
  EXPECT_TRUE(Leave(1, /*finished=*/false, "got SIGTERM").ok());
  EXPECT_EQ(manifests_.back().step, 50u);
  EXPECT_TRUE(WorkerPart(2, PartOf(WorkerPartName(2, 0), 100)).ok());
  EXPECT_EQ(manifests_.back().step, 100u);
}

TEST_F(ElasticTest, TheParametersOfTheStartAreNotLostWithTheirGiver) {
  WorkerJoin other = JoinOf(1);
  other.parameters_sha256 = "another";
  Join(1, JoinOf(0));
  Join(2, other);
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  AcknowledgeAll();
  ASSERT_EQ(coordinator_.phase(), JobPhase::kRunning);
  ASSERT_FALSE(answers_.at(1)->parameters_agree);
  EXPECT_THAT(answers_.at(1)->members, ElementsAre(0, 1));
  EXPECT_TRUE(Leave(0, /*finished=*/false, "got SIGTERM").ok());
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRecovering);
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
  EXPECT_EQ(coordinator_.phase(), JobPhase::kRecovering) << "two were here";
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

TEST_F(ElasticTest, ParametersAreComparedAmongThoseWhoAreHere) {
  StartJob();
  WorkerHeartbeat beat = BeatOfHolder(1, 100);
  beat.parameters_hash_step = 100;
  beat.parameters_sha256 = "a";
  EXPECT_TRUE(Beat(beat).ok());
  beat = BeatOfHolder(2, 100);
  beat.parameters_hash_step = 100;
  beat.parameters_sha256 = "b";
  (void)Beat(beat);
  EXPECT_EQ(coordinator_.phase(), JobPhase::kFailed);
}

}  // namespace
}  // namespace sluice
