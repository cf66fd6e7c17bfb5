#include "server/coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/coordinator_fixture.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(CoordinatorTest, NobodyIsAnsweredBeforeAllShardsAcknowledgedThePlanOfTheJob) {
  Join(1, JoinOf(0));
  Join(2, JoinOf(1));
  Attach(11, ArrivalOf(0));
  EXPECT_TRUE(commands_.empty()) << "shard 1 is not attached yet";
  Attach(12, ArrivalOf(1));
  ASSERT_EQ(commands_.size(), 2u);
  const protocol::StartShard& start = std::get<protocol::StartShard>(commands_[12].command);
  EXPECT_EQ(start.generation, 1u);
  EXPECT_EQ(start.incarnations.size(), 2u);
  EXPECT_TRUE(start.parameters_agree);
  Acknowledge(12, commands_[12].sequence);
  EXPECT_TRUE(answers_.empty()) << "shard 0 has not acknowledged";
  Acknowledge(11, commands_[11].sequence);
  ASSERT_EQ(answers_.size(), 2u);
  const protocol::JoinGrant& grant = *answers_.at(2);
  EXPECT_EQ(grant.rank, 1u);
  EXPECT_EQ(grant.incarnation, start.incarnations[1]);
  EXPECT_EQ(grant.shards.at(1).address, "h:7071");
  EXPECT_NE(start.incarnations[0], start.incarnations[1]);
}

TEST_F(CoordinatorTest, ARepeatedJoinIsOneMember) {
  Join(1, JoinOf(0));
  Join(5, JoinOf(0));
  EXPECT_EQ(answers_.at(1).status().code(), absl::StatusCode::kAborted);
  Join(2, JoinOf(1));
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  Acknowledge(11, 1);
  Acknowledge(12, 1);
  const uint64_t incarnation = answers_.at(5)->incarnation;
  Join(6, JoinOf(0));  // The reply was lost, so the worker joins again.
  EXPECT_EQ(answers_.at(6)->incarnation, incarnation);
}

TEST_F(CoordinatorTest, RefusesAShardOfAnotherVersion) {
  protocol::ShardArrival other = ArrivalOf(1);
  other.software_version = "2";
  Attach(12, other);
  EXPECT_EQ(refusals_.at(12).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refusals_.at(12).message()),
              AllOf(HasSubstr("shard 1"), HasSubstr("version 2, the coordinator 1"),
                    HasSubstr("use one build")));
}

TEST_F(CoordinatorTest, RefusesWhoDoesNotFit) {
  Join(1, JoinOf(0));
  protocol::WorkerJoin other = JoinOf(1);
  other.table[0].shape = {5};
  Join(2, other);
  EXPECT_EQ(answers_.at(2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(AnswerText(2), AllOf(HasSubstr("rank 1"), HasSubstr("different model than rank 0")));
  EXPECT_THAT(AnswerText(2), HasSubstr("w [5]"));
  other = JoinOf(1);
  other.job_hash = 8;
  Join(3, other);
  EXPECT_THAT(AnswerText(3), HasSubstr("another job file"));
  other = JoinOf(1);
  other.software_version = "2";
  Join(4, other);
  EXPECT_THAT(AnswerText(4), HasSubstr("version 2"));
  other = JoinOf(1);
  other.job_name = "x";
  Join(5, other);
  EXPECT_THAT(AnswerText(5), HasSubstr("belongs to job x"));
  Join(6, JoinOf(2));
  EXPECT_THAT(AnswerText(6), HasSubstr("ranks 0 to 1"));
  Join(7, JoinOf(0, /*nonce=*/1));
  EXPECT_EQ(answers_.at(7).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(AnswerText(7), AllOf(HasSubstr("rank 0"), HasSubstr("holds the rank")));
  EXPECT_FALSE(answers_.contains(1)) << "the first Join still waits";
}

TEST_F(CoordinatorTest, RefusesShardsThatDoNotFit) {
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(0, /*incarnation=*/51));
  EXPECT_EQ(refusals_.at(12).code(), absl::StatusCode::kAlreadyExists);
  Attach(13, ArrivalOf(2));
  EXPECT_EQ(refusals_.at(13).code(), absl::StatusCode::kInvalidArgument);
  coordinator_.ShardDetached(11);
  Attach(14, ArrivalOf(0, /*incarnation=*/52));
  EXPECT_FALSE(refusals_.contains(14)) << "the first process is gone and the job has not begun";
}

TEST_F(CoordinatorTest, WhoNeverCameIsNamed) {
  Join(1, JoinOf(0));
  Attach(11, ArrivalOf(0));
  Pass(absl::Seconds(61));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
  EXPECT_EQ(answers_.at(1).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(AnswerText(1),
              AllOf(HasSubstr("waited 1m: rank 1"), HasSubstr("shard 1 did not join")));
  EXPECT_EQ(std::get<protocol::EndShard>(commands_.at(11).command).phase,
            protocol::JobPhase::kFailed);
}

TEST_F(CoordinatorTest, ACancelledJoinFreesItsRank) {
  Join(1, JoinOf(0));
  coordinator_.JoinCancelled(1);
  protocol::WorkerJoin other = JoinOf(0, /*nonce=*/5);
  other.table[0].shape = {7};  // No other worker is present, so even the model may differ.
  Join(2, other);
  EXPECT_FALSE(answers_.contains(2));
}

TEST_F(CoordinatorTest, DifferentParametersAreAgreedOnInStepZero) {
  protocol::WorkerJoin other = JoinOf(1);
  other.parameters_sha256 = "other";
  Join(1, JoinOf(0));
  Join(2, other);
  Attach(11, ArrivalOf(0));
  Attach(12, ArrivalOf(1));
  EXPECT_FALSE(std::get<protocol::StartShard>(commands_.at(11).command).parameters_agree);
  Acknowledge(11, 1);
  Acknowledge(12, 1);
  EXPECT_FALSE(answers_.at(1)->parameters_agree);
}

TEST_F(CoordinatorTest, ALostWorkerEndsTheJob) {
  StartJob();
  for (int i = 0; i < 11; ++i) {
    Tick(absl::Seconds(1));
    EXPECT_TRUE(Beat(BeatOf(0)).ok());
    coordinator_.ShardHealth(11, {}, now_);
    coordinator_.ShardHealth(12, {}, now_);
  }
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
  EXPECT_THAT(coordinator_.failure(),
              AllOf(HasSubstr("rank 1"), HasSubstr("for 10s (server.lease_timeout)")));
  EXPECT_EQ(Beat(BeatOf(0))->failure, coordinator_.failure());
  EXPECT_EQ(std::get<protocol::EndShard>(commands_.at(12).command).reason, coordinator_.failure());
}

class StallTest : public CoordinatorTest {
 protected:
  explicit StallTest(CoordinatorOptions options = OptionsWithLimit())
      : CoordinatorTest(std::move(options)) {}

  static CoordinatorOptions OptionsWithLimit() {
    CoordinatorOptions options = ExampleOptions();
    options.stall_timeout = absl::Seconds(30);
    return options;
  }
  // Advances the time by a second. All processes report, but rank 1 reports no progress for the
  // time `stalled`.
  void PassSecond(absl::Duration stalled) {
    Tick(absl::Seconds(1));
    (void)Beat(BeatOf(0));
    protocol::WorkerHeartbeat beat = BeatOf(1);
    beat.since_progress = stalled;
    (void)Beat(beat);
    coordinator_.ShardHealth(11, {}, now_);
    coordinator_.ShardHealth(12, {}, now_);
  }
};

TEST_F(StallTest, ARankThatLivesAndDoesNothingIsFencedLikeALostOne) {
  StartJob();
  for (int seconds = 1; coordinator_.phase() == protocol::JobPhase::kRunning && seconds < 60;
       ++seconds) {
    PassSecond(absl::Seconds(seconds));
  }
  EXPECT_THAT(coordinator_.failure(),
              AllOf(HasSubstr("rank 1"), HasSubstr("no progress for 38s (server.stall_timeout)")));
}

TEST_F(StallTest, OneThatGoesOnInTimeIsNot) {
  StartJob();
  for (int round = 0; round < 5; ++round) {
    for (int seconds = 1; seconds < 38; ++seconds) PassSecond(absl::Seconds(seconds));
    PassSecond(absl::ZeroDuration());
  }
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
}

TEST_F(CoordinatorTest, WithoutALimitARankMayTakeItsTime) {
  StartJob();
  for (int seconds = 0; seconds < 100; ++seconds) {
    Tick(absl::Seconds(1));
    protocol::WorkerHeartbeat beat = BeatOf(1);
    beat.since_progress = absl::Hours(1);
    (void)Beat(beat);
    (void)Beat(BeatOf(0));
    coordinator_.ShardHealth(11, {}, now_);
    coordinator_.ShardHealth(12, {}, now_);
  }
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
}

TEST_F(CoordinatorTest, ALostShardEndsTheJobButANewConnectionDoesNot) {
  StartJob();
  coordinator_.ShardDetached(12);
  Attach(13, ArrivalOf(1));
  EXPECT_FALSE(commands_.contains(13)) << "the shard already knows the job";
  for (int i = 0; i < 11; ++i) {
    Tick(absl::Seconds(1));
    EXPECT_TRUE(Beat(BeatOf(0)).ok());
    EXPECT_TRUE(Beat(BeatOf(1)).ok());
    coordinator_.ShardHealth(13, {}, now_);
  }
  EXPECT_THAT(coordinator_.failure(), HasSubstr("shard 0 (h:7070) did not report"));
}

TEST_F(CoordinatorTest, ARestartedShardEndsARunningJob) {
  StartJob();
  coordinator_.ShardDetached(12);
  Attach(13, ArrivalOf(1, /*incarnation=*/60));
  EXPECT_THAT(coordinator_.failure(), HasSubstr("shard 1 (h:7071) was restarted"));
  EXPECT_EQ(refusals_.at(13).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CoordinatorTest, Shard0PausedBeyondTheLease) {
  StartJob();
  Pass(absl::Seconds(3));
  Tick(absl::Seconds(60));  // Only the coordinator was suspended during this time.
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning);
  Pass(absl::Seconds(6));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kRunning)
      << "3 s before the pause and 6 s after it are within the lease of 10 s";
  Pass(absl::Seconds(2));
  EXPECT_EQ(coordinator_.phase(), protocol::JobPhase::kFailed);
}

TEST_F(CoordinatorTest, DifferingParametersEndTheJobAndNameTheRanks) {
  StartJob();
  protocol::WorkerHeartbeat first = BeatOf(0);
  first.parameters_hash_step = 200;
  first.parameters_sha256 = "x";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Beat(first)->phase, protocol::JobPhase::kRunning);
  protocol::WorkerHeartbeat second = BeatOf(1);
  second.parameters_hash_step = 200;
  second.parameters_sha256 = "y";
  const protocol::JobState state = *Beat(second);
  EXPECT_EQ(state.phase, protocol::JobPhase::kFailed);
  EXPECT_THAT(state.failure,
              AllOf(HasSubstr("after step 200"), HasSubstr("the parameters of rank 1"),
                    HasSubstr("from those of rank 0")));
}

TEST_F(CoordinatorTest, AllLeftMeansFinishedAndDrainedOnceShardsKnow) {
  StartJob();
  EXPECT_EQ(Leave(0, true)->phase, protocol::JobPhase::kRunning);
  Pass(absl::Seconds(5));
  EXPECT_TRUE(Beat(BeatOf(1)).ok());
  EXPECT_EQ(Leave(1, true)->phase, protocol::JobPhase::kFinished);
  EXPECT_EQ(Leave(1, true)->phase, protocol::JobPhase::kFinished)
      << "a repeated Leave gets the same answer";
  EXPECT_EQ(std::get<protocol::EndShard>(commands_.at(11).command).phase,
            protocol::JobPhase::kFinished);
  EXPECT_FALSE(coordinator_.Drained());
  Acknowledge(11, commands_.at(11).sequence);
  Acknowledge(12, commands_.at(12).sequence);
  EXPECT_TRUE(coordinator_.Drained());
}

TEST_F(CoordinatorTest, AWorkerThatGivesUpEndsTheJobWithItsReason) {
  StartJob();
  const protocol::JobState state = *Leave(1, false, "disk full");
  EXPECT_THAT(state.failure, AllOf(HasSubstr("rank 1"), HasSubstr("gave up: disk full")));
  coordinator_.ShardFailed(11, "later", &effects_);
  EXPECT_EQ(coordinator_.failure(), state.failure) << "the first reason stays";
  Acknowledge(11, 2);
  Acknowledge(12, 2);
  EXPECT_FALSE(coordinator_.Drained()) << "rank 0 does not know of the failure yet";
  EXPECT_EQ(Beat(BeatOf(0))->phase, protocol::JobPhase::kFailed);
  EXPECT_TRUE(coordinator_.Drained());
}

TEST_F(CoordinatorTest, HeartbeatsOfStrangersAreRefused) {
  StartJob();
  protocol::WorkerHeartbeat stranger = BeatOf(0);
  stranger.sender.incarnation ^= 2;
  EXPECT_EQ(Beat(stranger).status().code(), absl::StatusCode::kFailedPrecondition);
  stranger = BeatOf(0);
  stranger.sender.job_uid = 1;
  EXPECT_THAT(std::string(Beat(stranger).status().message()), HasSubstr("another run"));
  stranger = BeatOf(0);
  stranger.sender.rank = 44;
  EXPECT_FALSE(Beat(stranger).ok());
}

TEST_F(CoordinatorTest, StatusShowsMembersAndShards) {
  StartJob();
  protocol::WorkerHeartbeat beat = BeatOf(1);
  beat.progress.step = 17;
  ASSERT_TRUE(Beat(beat).ok());
  now_ += absl::Seconds(2);
  const JobStatus status = coordinator_.Status(now_);
  EXPECT_EQ(status.phase, protocol::JobPhase::kRunning);
  EXPECT_EQ(status.members.at(1).progress.step, 17u);
  EXPECT_EQ(status.members.at(1).since_heartbeat, absl::Seconds(2));
  EXPECT_TRUE(status.shards.at(0).attached);
}

TEST_F(CoordinatorTest, StatusShowsWhereTimeWent) {
  StartJob();
  protocol::WorkerHeartbeat beat = BeatOf(1);
  beat.timings = {.steps = 4, .compute_seconds = 3, .exchange_seconds = 2};
  ASSERT_TRUE(Beat(beat).ok());
  coordinator_.ShardHealth(11, {.waited_seconds = {0.5, 1, 99}}, now_);
  coordinator_.ShardHealth(12, {.waited_seconds = {0.5, 2}}, now_);
  const JobStatus status = coordinator_.Status(now_);
  EXPECT_EQ(status.members.at(1).timings.steps, 4u);
  EXPECT_EQ(status.members.at(1).timings.compute_seconds, 3);
  EXPECT_EQ(status.members.at(1).waited_seconds, 1.5) << "the shards wait at the same time";
}

TEST_F(CoordinatorTest, StatusShowsTheSlowestLinkEachWay) {
  StartJob();
  const protocol::LinkFigures unknown;
  const protocol::LinkFigures one{
      .up_rate = 5, .up_latency_s = 0.5, .down_rate = 9, .down_latency_s = 0.9};
  const protocol::LinkFigures other{
      .up_rate = 7, .up_latency_s = 0.7, .down_rate = 8, .down_latency_s = 0.8};
  coordinator_.ShardHealth(11, {.links = {unknown, one}}, now_);
  coordinator_.ShardHealth(12, {.links = {unknown, other, other, other}}, now_);
  const JobStatus status = coordinator_.Status(now_);
  EXPECT_EQ(status.members.at(0).link.up_rate, 0);
  const protocol::LinkFigures& link = status.members.at(1).link;
  EXPECT_EQ(link.up_rate, 5);
  EXPECT_EQ(link.up_latency_s, 0.5);
  EXPECT_EQ(link.down_rate, 8);
  EXPECT_EQ(link.down_latency_s, 0.8);
}

}  // namespace
}  // namespace sluice::server
