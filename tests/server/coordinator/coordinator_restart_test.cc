// Tests how a restarted coordinator continues a term, or reports the end of a run, from the record
// that it finds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/repair_fixture.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CoordinatorOptions CoordinatorRestartAfterARestart() {
  CoordinatorOptions options = WithRepair({.job_name = "demo",
                                           .job_hash = 9,
                                           .software_version = "1",
                                           .world_size = 2,
                                           .shards = 2,
                                           .layout = {},
                                           .job_uid = 1234});
  protocol::RunRecord record{.job_name = "demo", .job_uid = 77, .term = 3, .generation = 4};
  record.coordinator_incarnation = 6;
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
  options.checkpoints = TwoCheckpoints();
  return options;
}

class RestartInTermTest : public RepairTest {
 protected:
  RestartInTermTest() : RestartInTermTest(CoordinatorRestartAfterARestart()) {}
  explicit RestartInTermTest(CoordinatorOptions options) : RepairTest(std::move(options)) {}

  // Returns a heartbeat of a member from the record.
  protocol::WorkerHeartbeat OldBeat(uint32_t rank, uint64_t step = 240) {
    protocol::WorkerHeartbeat beat;
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
  ASSERT_EQ(records_.size(), 1u);
  protocol::RunRecord record = *CoordinatorRestartAfterARestart().run;
  record.coordinator_incarnation = 7;
  EXPECT_EQ(records_[0], record) << "only the coordinator's number changes";
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  EXPECT_EQ(coordinator_.term(), 3u);
  EXPECT_EQ(Now().generation, 4u);
  EXPECT_THAT(notices_.back(), HasSubstr("term 3 continues"));
  AttachRunning(12, 1, 3);
  EXPECT_EQ(StartOf(12), nullptr) << "the shard is already running";
  ASSERT_NE(MembersOf(12), nullptr) << "the previous coordinator may not have told it";
  EXPECT_EQ(MembersOf(12)->generation, 4u);
  EXPECT_EQ(ReleaseOf(12)->durable_step, 200u);
  Attach(11, ArrivalOf(0, 60));
  EXPECT_EQ(StartOf(11), nullptr) << "no worker of the term has reported yet";
  EXPECT_EQ(Beat(OldBeat(0))->term, 3u);
  ASSERT_NE(StartOf(11), nullptr);
  EXPECT_EQ(StartOf(11)->term, 3u);
  EXPECT_EQ(StartOf(11)->restore_step, 200u);
  EXPECT_TRUE(StartOf(11)->replay);
  EXPECT_THAT(StartOf(11)->incarnations, ElementsAre(900u, 901u));
  EXPECT_EQ(StartOf(11)->coordinator_incarnation, 7u);
  EXPECT_EQ(Now().repairs, 1u);
  EXPECT_EQ(Beat(OldBeat(1))->durable_step, 200u);
  EXPECT_EQ(Now().rollbacks, 0u);
}

TEST_F(RestartInTermTest, AcknowledgementsOfTheCoordinatorBeforeAreNotOurs) {
  AttachRunning(12, 1, 3);
  Acknowledge(12, uint64_t{3} << 32 | 7);
  Join(7, JoinOf(1, 1001));  // The worker's first call was not answered.
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
  EXPECT_EQ(NameOf(11)->minimum_step, 1u) << "the checkpoint is requested as soon as possible";
  coordinator_.ShardNamedCheckpoint(11, 243);
  Tick(absl::Milliseconds(100));
  ShardPart(11, PartOf(protocol::ShardPartName(0, 3), 243));
  ShardPart(12, PartOf(protocol::ShardPartName(1, 3), 243));
  for (const uint32_t rank : {0, 1}) {
    protocol::WorkerHeartbeat beat = OldBeat(rank, 250);
    beat.parts.push_back(PartOf(protocol::WorkerPartName(rank, 3), 243));
    EXPECT_TRUE(Beat(beat).ok());
  }
  Written(243);
  EXPECT_EQ(*checkpoint_answers_.at(1), 243u);
  EXPECT_EQ(NameOf(11)->minimum_step, 300u);
}

TEST_F(RestartInTermTest, PartsOfACheckpointThatWasForgottenAreGatheredAgain) {
  AttachRunning(12, 1, 3);
  ShardPart(12, PartOf(protocol::ShardPartName(1, 3), 230));
  Attach(11, ArrivalOf(0, 60));
  for (const uint32_t rank : {0, 1}) {
    protocol::WorkerHeartbeat beat = OldBeat(rank);
    beat.parts.push_back(PartOf(protocol::WorkerPartName(rank, 3), 230));
    EXPECT_TRUE(Beat(beat).ok());
  }
  AcknowledgeStart(11);
  EXPECT_THAT(manifests_, IsEmpty());
  ShardPart(11, PartOf(protocol::ShardPartName(0, 3), 230));  // The shard has replayed the steps.
  ASSERT_EQ(manifests_.size(), 1u);
  EXPECT_EQ(manifests_[0].step, 230u);
}

TEST_F(RestartInTermTest, ThePartOfAShardThatWasReplacedIsNotThatOfTheNewOne) {
  AttachRunning(11, 0, 3);
  AttachRunning(12, 1, 3);
  ShardPart(11, PartOf(protocol::ShardPartName(0, 3), 230));
  ShardPart(12, PartOf(protocol::ShardPartName(1, 3), 230));
  // The previous coordinator started this process, which replays its steps from 201 on.
  AttachRunning(13, 1, 3, 60);
  for (const uint32_t rank : {0, 1}) {
    protocol::WorkerHeartbeat beat = OldBeat(rank);
    beat.parts.push_back(PartOf(protocol::WorkerPartName(rank, 3), 230));
    EXPECT_TRUE(Beat(beat).ok());
  }
  EXPECT_THAT(manifests_, IsEmpty()) << "workers would discard contributions that the shard needs";
  ShardPart(13, PartOf(protocol::ShardPartName(1, 3), 230));
  EXPECT_EQ(manifests_.size(), 1u);
}

TEST_F(RestartInTermTest, AForgottenCheckpointThatCannotBecomeCompleteIsGivenUpSoon) {
  AttachRunning(12, 1, 3);
  Attach(11, ArrivalOf(0, 60));
  PassWithOld({0, 1}, {12}, absl::Seconds(1));
  AcknowledgeStart(11);
  ShardPart(12, PartOf(protocol::ShardPartName(1, 3), 230));
  PassWithOld({0, 1}, {11, 12}, absl::Seconds(30), 229);
  EXPECT_THAT(warnings_, IsEmpty()) << "a worker has not finished step 230 yet";
  PassWithOld({0, 1}, {11, 12}, absl::Seconds(55), 240);
  EXPECT_THAT(warnings_, IsEmpty());
  PassWithOld({0, 1}, {11, 12}, absl::Seconds(10), 240);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], AllOf(HasSubstr("after step 230 was abandoned"),
                                  HasSubstr("worker-1-term-3.state did not arrive"),
                                  HasSubstr("within 1m"), HasSubstr("requested it was replaced")));
  ASSERT_NE(NameOf(11), nullptr);
  EXPECT_EQ(NameOf(11)->minimum_step, 300u);
}

TEST_F(RestartInTermTest, ALaterCheckpointShowsThatTheOneBeforeWasGivenUp) {
  AttachRunning(12, 1, 3);
  ShardPart(12, PartOf(protocol::ShardPartName(1, 3), 230));
  EXPECT_TRUE(Beat(OldBeat(0)).ok());
  protocol::WorkerHeartbeat beat = OldBeat(1, 260);
  beat.parts.push_back(PartOf(protocol::WorkerPartName(1, 3), 250));
  EXPECT_TRUE(Beat(beat).ok());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0],
              AllOf(HasSubstr("step 230 was abandoned"), HasSubstr("the one after step 250")));
  ShardPart(12, PartOf(protocol::ShardPartName(1, 3), 230));
  EXPECT_EQ(warnings_.size(), 1u) << "the part arrives too late";
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
  ASSERT_NE(StartOf(12), nullptr) << "the shard runs the previous term";
  EXPECT_EQ(StartOf(12)->term, 3u);
}

TEST_F(RestartInTermTest, AWorkerThatDiedWithTheCoordinatorIsReplaced) {
  AttachRunning(12, 1, 3);
  Attach(11, ArrivalOf(0, 60));
  Join(7, JoinOf(1, 7777));
  PassWithOld({0}, {11, 12}, absl::Seconds(9));
  EXPECT_EQ(records_.size(), 1u) << "the rank's holder may not have reconnected yet";
  AcknowledgeStart(11);
  PassWithOld({0}, {11, 12}, absl::Seconds(2));
  ASSERT_EQ(records_.size(), 2u);
  EXPECT_EQ(records_[1].generation, 5u);
  EXPECT_EQ(records_[1].term, 3u);
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
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
  EXPECT_THAT(coordinator_.failure(), AllOf(HasSubstr("rank 1"), HasSubstr("did not come back")));
}

TEST_F(RestartInTermTest, AShardThatNeverComesBackEndsTheJob) {
  AttachRunning(11, 0, 3);
  PassWithOld({0, 1}, {11}, absl::Minutes(10) + absl::Seconds(2));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
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
  EXPECT_EQ(coordinator_.term(), 4u) << "no worker of the term is left";
  EXPECT_EQ(Now().repairs, 0u);
  EXPECT_THAT(warnings_.back(), AllOf(HasSubstr("rank 0"), HasSubstr("no worker of term 3"),
                                      HasSubstr("back to step 200")));
  AcknowledgeAll();
  ASSERT_TRUE(answers_.at(7).ok());
  EXPECT_EQ(answers_.at(7)->term, 4u);
  EXPECT_EQ(answers_.at(8)->restore_step, 200u);
  EXPECT_FALSE(StartOf(12)->replay);
}

TEST_F(RestartInTermTest, NobodyComesBackAtAll) {
  Pass(absl::Seconds(11));
  EXPECT_EQ(coordinator_.term(), 3u) << "the workers may be disconnected";
  Pass(absl::Minutes(11));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
}

TEST_F(RestartInTermTest, WorkersThatKeepTooLittleTakeARollback) {
  AttachRunning(12, 1, 3);
  protocol::WorkerHeartbeat beat = OldBeat(0);
  beat.replay_from = 230;
  EXPECT_TRUE(Beat(beat).ok());
  Attach(11, ArrivalOf(0, 60));
  EXPECT_EQ(coordinator_.term(), 4u);
  EXPECT_THAT(warnings_.back(),
              AllOf(HasSubstr("keeps only contributions from step 230"),
                    HasSubstr("step 240 to step 200"), HasSubstr("40 steps are lost")));
  EXPECT_EQ(NewestOf<protocol::SuspendShard>(12)->command.index(),
            NewestOf<protocol::SuspendShard>(11)->command.index());
}

CoordinatorOptions AfterTheEnd() {
  CoordinatorOptions options = CoordinatorRestartAfterARestart();
  options.run->finished = true;
  return options;
}

class FinishedRunTest : public RepairTest {
 protected:
  FinishedRunTest() : RepairTest(AfterTheEnd()) {}
};

TEST_F(FinishedRunTest, ItsWorkersAndShardsAreTold) {
  ASSERT_EQ(records_.size(), 1u) << "the record must contain the coordinator's number";
  EXPECT_TRUE(records_[0].finished);
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFinished);
  AttachRunning(12, 1, 3);
  ASSERT_NE(LastOf<protocol::EndShard>(12), nullptr);
  EXPECT_EQ(LastOf<protocol::EndShard>(12)->phase, protocol::JobPhase::kFinished);
  Attach(11, ArrivalOf(0, 60));
  EXPECT_NE(LastOf<protocol::EndShard>(11), nullptr);
  AcknowledgeAll();
  EXPECT_FALSE(coordinator_.AnyToldEnd());
  EXPECT_FALSE(coordinator_.Drained());
  for (const uint32_t rank : {0, 1}) {
    protocol::WorkerLeave leave{.last = {}, .finished = true, .reason = ""};
    leave.last.sender = {.job_uid = 77, .term = 3, .rank = rank, .incarnation = 900 + rank};
    EXPECT_EQ(coordinator_.Leave(leave, now_, &effects_)->phase, protocol::JobPhase::kFinished);
    EXPECT_TRUE(coordinator_.AnyToldEnd());
  }
  EXPECT_TRUE(coordinator_.Drained());
  Join(7, JoinOf(1, 7777));
  EXPECT_THAT(AnswerText(7), HasSubstr("job demo has finished"));
  Pass(absl::Minutes(20));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFinished);
}

CoordinatorOptions AfterARestartBeforeTheAnnouncement() {
  CoordinatorOptions options = CoordinatorRestartAfterARestart();
  options.run->generation = 0;
  options.run->members.clear();
  options.run->table.clear();
  return options;
}

TEST(RestartedCoordinator, ATermThatWasNotAnnouncedIsFollowedByTheNext) {
  Coordinator coordinator(AfterARestartBeforeTheAnnouncement(), absl::UnixEpoch());
  EXPECT_EQ(coordinator.term(), 4u);
  EXPECT_EQ(coordinator.phase(), protocol::JobPhase::kRecovering);
}

TEST(RestartedCoordinator, ATermWhoseFirstCheckpointIsGoneIsFollowedByTheNext) {
  CoordinatorOptions options = CoordinatorRestartAfterARestart();
  options.checkpoints.resize(1);
  EXPECT_EQ(Coordinator(options, absl::UnixEpoch()).term(), 3u)
      << "the term began with the remaining checkpoint";
  options.checkpoints.clear();
  const Coordinator coordinator(options, absl::UnixEpoch());
  EXPECT_EQ(coordinator.term(), 4u) << "no process keeps data of steps 1 to 100";
  EXPECT_EQ(coordinator.phase(), protocol::JobPhase::kRecovering);
}

TEST(RestartedCoordinator, ARecordOfAnotherWorldOrWithoutAReplayLimitIsFollowedByTheNextTerm) {
  CoordinatorOptions options = CoordinatorRestartAfterARestart();
  options.world_size = 3;
  EXPECT_EQ(Coordinator(options, absl::UnixEpoch()).term(), 4u);
  options = CoordinatorRestartAfterARestart();
  options.replay_limit = 0;
  EXPECT_EQ(Coordinator(options, absl::UnixEpoch()).term(), 4u);
}

// There is no checkpoint, and the shards got their parameters from rank 0. If a shard is restarted,
// the job must return to its start as soon as a worker reports.
class RestartAtTheStartTest : public RestartInTermTest {
 protected:
  RestartAtTheStartTest() : RestartInTermTest(AtTheStart()) {}

  static CoordinatorOptions AtTheStart() {
    CoordinatorOptions options = CoordinatorRestartAfterARestart();
    options.shards_update = true;
    options.checkpoints = {};
    options.run->restore_step = 0;
    options.run->parameters_agree = false;
    return options;
  }
  absl::StatusOr<protocol::JobState> LeaveFinished(const protocol::WorkerHeartbeat& last) {
    absl::StatusOr<protocol::JobState> state =
        coordinator_.Leave({last, /*finished=*/true, ""}, now_, &effects_);
    Collect();
    return state;
  }
};

TEST_F(RestartAtTheStartTest, ALeaveThatTakesTheJobBackIsOfTheTermThatIsOver) {
  AttachRunning(12, 1, 3);
  Attach(11, ArrivalOf(0, 60));
  const absl::StatusOr<protocol::JobState> state = LeaveFinished(OldBeat(0));
  ASSERT_EQ(coordinator_.term(), 4u);
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->term, 4u);
  EXPECT_FALSE(Now().members[0].left);
  ComeAgain();
  EXPECT_FALSE(Now().members[0].left) << "rank 0 runs the steps again";
  EXPECT_TRUE(LeaveFinished(BeatOfHolder(2, 50)).ok());
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning) << "rank 0 has not finished";
  EXPECT_TRUE(LeaveFinished(BeatOfHolder(1, 50)).ok());
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFinished);
}

}  // namespace
}  // namespace sluice::server
