// Tests how the coordinator gives the ranks of lost workers to other workers, and when it rolls
// back instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/repair_fixture.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(RepairTest, ASuccessorGoesThroughTheStepsAgain) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({1, 2}, {11, 12}, absl::Seconds(1), 140);
  const uint64_t before = answers_.at(2)->incarnation;
  protocol::WorkerJoin join = JoinOf(1, 9999);
  join.host = "b";
  join.pid = 9;
  join.parameters_sha256 = "of a new process";
  ForgetCommands();
  Join(7, join);
  PassWith({1}, {11, 12}, absl::Seconds(2), 140);
  EXPECT_EQ(MembersOf(11), nullptr) << "the rank's holder may be alive";
  PassWith({1}, {11, 12}, absl::Seconds(1), 140);
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_EQ(records_.back().generation, 2u);
  EXPECT_EQ(records_.back().members[1].nonce, 9999u);
  ASSERT_NE(MembersOf(11), nullptr);
  ASSERT_NE(MembersOf(12), nullptr);
  EXPECT_EQ(MembersOf(12)->generation, 2u);
  EXPECT_EQ(MembersOf(12)->incarnations[0], answers_.at(1)->incarnation);
  EXPECT_NE(MembersOf(12)->incarnations[1], before);
  EXPECT_FALSE(answers_.contains(7));
  AcknowledgeMembers(11);
  EXPECT_FALSE(answers_.contains(7)) << "shard 1 does not know the successor yet";
  AcknowledgeMembers(12);
  ASSERT_TRUE(answers_.at(7).ok()) << answers_.at(7).status();
  const protocol::JoinGrant& grant = *answers_.at(7);
  EXPECT_EQ(grant.term, 0u);
  EXPECT_EQ(grant.generation, 2u);
  EXPECT_EQ(grant.restore_step, 100u);
  EXPECT_EQ(grant.first_step, 101u);
  EXPECT_TRUE(grant.parameters_agree);
  EXPECT_EQ(grant.incarnation, MembersOf(12)->incarnations[1]);
  EXPECT_THAT(Now().last_repair, AllOf(HasSubstr("rank 1"), HasSubstr("replaced by b pid 9"),
                                       HasSubstr("the steps after 100")));
  EXPECT_EQ(Beat(BeatOfHolder(2)).status().code(), absl::StatusCode::kFailedPrecondition)
      << "the previous holder is fenced";
  EXPECT_TRUE(Beat(BeatOfHolder(7, 101, 101)).ok());
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kReplay);
}

// The shard will replay from the checkpoint that is being written, so it will have the results that
// a replaced worker needs.
TEST_F(RepairTest, AWorkerMayBeLostWhileAShardWaitsForTheCheckpoint) {
  StartJob();
  CompleteCheckpoint(100);
  GiveAllParts(200);
  Attach(13, ArrivalOf(1, 60));
  ASSERT_EQ(StartOf(13), nullptr);
  EXPECT_EQ(Now().recovery_class, RecoveryClass::kReplay) << Now().recovery_reason;
  PassWith({2}, {11, 13}, absl::Seconds(11), 210);
  EXPECT_EQ(coordinator_.term(), 0u) << warnings_.back();
  Written(200);
  ASSERT_NE(StartOf(13), nullptr);
  EXPECT_EQ(StartOf(13)->restore_step, 200u);
  EXPECT_EQ(Now().rollbacks, 0u);
}

// The holder of rank 1 reports a parameter hash and is then lost with all its state. Join token 7
// replaces it. There is a checkpoint after step 100.
class SuccessorHashTest : public RepairTest {
 protected:
  void ReportAndReplace() {
    StartJob();
    CompleteCheckpoint(100);
    ReportParameters(2, 120, "x");
    Join(7, JoinOf(1, 9999));
    PassWith({1}, {11, 12}, absl::Seconds(3), 140);
    AcknowledgeMembers(11);
    AcknowledgeMembers(12);
    ASSERT_TRUE(answers_.at(7).ok()) << answers_.at(7).status();
  }
  protocol::JobPhase ReportParameters(JoinToken holder, uint64_t step, const std::string& sha256) {
    protocol::WorkerHeartbeat beat = BeatOfHolder(holder, step);
    beat.parameters_hash_step = step;
    beat.parameters_sha256 = sha256;
    return Beat(beat)->phase;
  }
};

TEST_F(SuccessorHashTest, OtherParametersThanItsPredecessorHadTakeTheJobBack) {
  ReportAndReplace();
  EXPECT_EQ(ReportParameters(7, 120, "y"), protocol::JobPhase::kRecovering);
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_EQ(coordinator_.failure(), "");
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("after step 120"), HasSubstr("the parameters of rank 1"),
                    HasSubstr("earlier process of rank 1"),
                    HasSubstr("cannot be repaired in place"), HasSubstr("step 140 to step 100")));
}

TEST_F(SuccessorHashTest, SoDoOtherParametersOfTheOtherRank) {
  ReportAndReplace();
  EXPECT_EQ(ReportParameters(1, 120, "y"), protocol::JobPhase::kRecovering);
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("the parameters of rank 0"), HasSubstr("earlier process of rank 1")));
}

TEST_F(SuccessorHashTest, ASuccessorThatDiffersFromOneThatWasNotLostTakesTheJobBack) {
  ReportAndReplace();
  EXPECT_EQ(ReportParameters(1, 130, "x"), protocol::JobPhase::kRunning);
  EXPECT_EQ(ReportParameters(7, 130, "y"), protocol::JobPhase::kRecovering);
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("the parameters of rank 1"), HasSubstr("from those of rank 0")));
  // The new term has no repairs. A rank that differs again must therefore have diverged in
  // training, so the job must fail.
  ComeAgain();
  EXPECT_EQ(ReportParameters(1, 130, "x"), protocol::JobPhase::kRunning);
  EXPECT_EQ(ReportParameters(2, 130, "y"), protocol::JobPhase::kFailed);
}

TEST_F(SuccessorHashTest, ADifferenceThatACheckpointHasEndsTheJob) {
  ReportAndReplace();
  for (uint32_t i = 0; i < 2; ++i) {
    ShardPart(11 + i, PartOf(protocol::ShardPartName(i, 0), 125));
    const protocol::Sender sender = BeatOfHolder(i == 0 ? 1 : 7).sender;
    const protocol::CheckpointPart part = PartOf(protocol::WorkerPartName(i, 0), 125);
    EXPECT_TRUE(coordinator_.WorkerPart(sender, part, now_, &effects_).ok());
    Collect();
  }
  Written(125);
  EXPECT_EQ(ReportParameters(1, 120, "y"), protocol::JobPhase::kFailed);
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_THAT(coordinator_.failure(), HasSubstr("earlier process of rank 1"));
}

TEST_F(RepairTest, RetryAcrossAGenerationChange) {
  StartJob();
  CompleteCheckpoint(100);
  const protocol::WorkerHeartbeat old = BeatOfHolder(1, 140);
  Join(7, JoinOf(1, 9999));
  PassWith({1}, {11, 12}, absl::Seconds(3), 140);
  const protocol::JobState state = *Beat(old);
  EXPECT_EQ(state.generation, 2u);
  EXPECT_EQ(state.term, 0u) << "a new generation does not affect remaining members";
  Join(8, JoinOf(1, 9999));  // The newcomer's call broke, so it joins again.
  EXPECT_EQ(answers_.at(7).status().code(), absl::StatusCode::kAborted);
  AcknowledgeMembers(11);
  AcknowledgeMembers(12);
  ASSERT_TRUE(answers_.at(8).ok());
  Join(9, JoinOf(1, 9999));  // The answer was lost, so the newcomer joins once more.
  ASSERT_TRUE(answers_.at(9).ok());
  EXPECT_EQ(answers_.at(9)->incarnation, answers_.at(8)->incarnation);
  EXPECT_EQ(answers_.at(9)->first_step, 101u);
  EXPECT_EQ(Now().repairs, 1u) << "all three calls are from one successor";
}

TEST_F(RepairTest, ASuccessorIsNotReplacedWhileItWaits) {
  StartJob();
  CompleteCheckpoint(100);
  Join(7, JoinOf(1, 9999));
  PassWith({1}, {11, 12}, absl::Seconds(3), 140);
  Join(8, JoinOf(1, 8888));
  PassWith({1}, {11, 12}, absl::Seconds(20), 140);
  EXPECT_EQ(records_.back().members[1].nonce, 9999u);
  EXPECT_FALSE(Now().members[1].lost) << "the successor's Join call is open";
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
  protocol::WorkerJoin other = JoinOf(1, 8888);
  other.parameters_sha256 = "other";
  Join(8, other);
  PassWith({1}, {11, 12}, absl::Seconds(4), 40);
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(), HasSubstr("other parameters than its predecessor"));
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
              AllOf(HasSubstr("rank 1"), HasSubstr("replaced by a pid 121"),
                    HasSubstr("shard 1 (h:7071) keeps only"), HasSubstr("results from step 102"),
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
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("no worker of term 0 is left"), HasSubstr("step 140 to step 100"),
                    HasSubstr("40 steps are lost")));
  AcknowledgeAll();
  EXPECT_EQ(answers_.at(7)->term, 1u);
  EXPECT_EQ(answers_.at(8)->restore_step, 100u);
}

// If all workers are silent for a lease, the coordinator itself may have been disconnected. It must
// wait for the workers instead of rolling back.
TEST_F(RepairTest, AllWorkersSilentForALeaseAreAwaited) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({}, {11, 12}, absl::Seconds(11), 140);
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_THAT(warnings_.back(), HasSubstr("the others wait up to"));
  PassWith({1, 2}, {11, 12}, absl::Seconds(20), 140);
  EXPECT_EQ(coordinator_.term(), 0u);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
}

TEST_F(RepairTest, ASuccessorAmongSilentWorkersWaitsForThemALease) {
  StartJob();
  CompleteCheckpoint(100);
  PassWith({}, {11, 12}, absl::Seconds(11), 140);
  Join(7, JoinOf(0, 9998));
  PassWith({}, {11, 12}, absl::Seconds(8), 140);
  EXPECT_EQ(coordinator_.term(), 0u) << "rank 1 may report again";
  PassWith({}, {11, 12}, absl::Seconds(4), 140);
  EXPECT_EQ(coordinator_.term(), 1u);
  EXPECT_THAT(warnings_.back(), HasSubstr("no worker of term 0 is left"));
}

}  // namespace
}  // namespace sluice::server
