// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/administration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/coordinator/elastic_members.h"
#include "server/coordinator/lease_watch.h"
#include "tests/server/coordinator/checkpoint_fixture.h"
#include "tests/server/coordinator/job_run_fixture.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class AdministrationTest : public JobRunTest {
 protected:
  explicit AdministrationTest(CoordinatorOptions options = RepairOptions())
      : JobRunTest(std::move(options)) {
    Start();
  }
  absl::StatusOr<std::string> Evict(uint32_t rank, bool allow_rollback = false) {
    return administration_.Evict(
        {.rank = rank, .reason = "a bad disk", .allow_rollback = allow_rollback}, now_, &effects_);
  }
  void ReportAll() {
    Report(0);
    Report(1);
  }

  ElasticMembers elastic_{&run_};
  Administration administration_{&run_, &elastic_};
};

TEST_F(AdministrationTest, AJobWithReplayWaitsForAnotherProcessOfAnEvictedRank) {
  ReportAll();
  const absl::StatusOr<std::string> outcome = Evict(1);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(*outcome, StartsWith("rank 1 (host a, pid 121) is evicted; the job waits up to"));
  EXPECT_TRUE(absl::IsFailedPrecondition(run_.roster().CheckSender(BeatOf(1).sender)))
      << "its next heartbeat tells the worker";
  LeaseWatch(&run_, now_).AwaitLost(now_, &effects_);
  EXPECT_TRUE(run_.roster()[1].is_lost());
  EXPECT_THAT(LastNotice(), HasSubstr("left: an administrator evicted it: a bad disk"));
  AwaitRank(1, 3);
  EXPECT_EQ(run_.roster().Replaceable(now_), Roster::Ranks{1})
      << "a newcomer does not wait for the lease";
}

TEST_F(AdministrationTest, TheEvictedProcessCannotJoinAgainAndAnotherOneCan) {
  ReportAll();
  ASSERT_TRUE(Evict(1).ok());
  const absl::Status again = administration_.CheckNotEvicted(JoinOf(1));
  EXPECT_TRUE(absl::IsFailedPrecondition(again)) << again;
  EXPECT_THAT(again.message(), HasSubstr("rank 1"));
  EXPECT_TRUE(administration_.CheckNotEvicted(JoinOf(1, /*nonce=*/5001)).ok());
  EXPECT_TRUE(administration_.CheckNotEvicted(JoinOf(0)).ok());
}

TEST_F(AdministrationTest, ItRefusesRanksWithoutAWorkerThatCouldBeEvicted) {
  ReportAll();
  EXPECT_TRUE(absl::IsInvalidArgument(Evict(2).status())) << Evict(2).status();
  ASSERT_TRUE(Evict(1).ok());
  EXPECT_THAT(Evict(1).status().message(), HasSubstr("no worker holds rank 1"));
  run_.roster().Leave(0);
  EXPECT_THAT(Evict(0).status().message(), HasSubstr("has finished"));
  run_.Fail("a test", &effects_);
  EXPECT_THAT(Evict(0).status().message(), HasSubstr("while the job is failed"));
}

TEST_F(AdministrationTest, AWorkerWhoseJoinWaitsIsNotEvicted) {
  run_.roster().Repeat(1, /*token=*/9, &effects_);
  EXPECT_TRUE(absl::IsUnavailable(Evict(1).status())) << Evict(1).status();
  EXPECT_FALSE(run_.roster()[1].gave_up());
}

class WithoutCheckpointsTest : public AdministrationTest {
 protected:
  WithoutCheckpointsTest() : AdministrationTest(WithoutCheckpoints()) {}
};

TEST_F(WithoutCheckpointsTest, AJobThatWouldEndKeepsItsWorker) {
  EXPECT_THAT(Evict(1).status().message(), HasSubstr("the job has no checkpoints and would end"));
  EXPECT_TRUE(run_.roster().CheckSender(BeatOf(1).sender).ok());
}

class RollbackOnlyTest : public AdministrationTest {
 protected:
  RollbackOnlyTest() : AdministrationTest(Options()) {}
  static CoordinatorOptions Options() {
    CoordinatorOptions options = RepairOptions();
    options.checkpoint.replay_limit = 0;
    return options;
  }
};

TEST_F(RollbackOnlyTest, ARollbackNeedsPermission) {
  CompleteCheckpoint(10);
  ReportAll();
  const absl::Status refused = Evict(1).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(refused.message(), HasSubstr("rolls back to the checkpoint after step 10"));
  EXPECT_FALSE(run_.roster()[1].gave_up());
  const absl::StatusOr<std::string> outcome = Evict(1, /*allow_rollback=*/true);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(*outcome, HasSubstr("rolls back to the checkpoint after step 10"));
  LeaseWatch(&run_, now_).CheckLeases(now_, &effects_);
  EXPECT_TRUE(run_.is_recovering());
  EXPECT_EQ(run_.term().number, 1u);
}

class ElasticTest : public AdministrationTest {
 protected:
  ElasticTest() : AdministrationTest(ElasticOptions()) {}
};

TEST_F(ElasticTest, AnElasticJobContinuesWithTheOthers) {
  CompleteCheckpoint(10);
  const absl::StatusOr<std::string> outcome = Evict(1);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(*outcome, HasSubstr("the job continues with 1 workers"));
  EXPECT_EQ(run_.roster().PresentRanks(), Roster::Ranks{0});
  EXPECT_TRUE(run_.is_running());
}

TEST_F(AdministrationTest, TheLeaseChangesWithinItsLimits) {
  for (const absl::Duration bad :
       {absl::Seconds(-1), absl::Milliseconds(1), absl::Hours(25), absl::InfiniteDuration(),
        absl::Seconds(std::numeric_limits<double>::quiet_NaN())}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(administration_.Change({.lease_timeout = bad}, &effects_).status()))
        << bad;
  }
  EXPECT_EQ(run_.options().server.lease_timeout, absl::Seconds(10));
  const absl::StatusOr<RunningSettings> settings =
      administration_.Change({.lease_timeout = absl::Minutes(5)}, &effects_);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(*settings, (RunningSettings{.lease_timeout = absl::Minutes(5)}));
  now_ += absl::Seconds(20);
  EXPECT_TRUE(run_.roster().Expired(now_).empty());
  now_ += absl::Minutes(5);
  EXPECT_EQ(run_.roster().Expired(now_), (Roster::Ranks{0, 1}));
}

TEST_F(AdministrationTest, TheLogLevelReachesAllShardsAndThoseThatAttachLater) {
  const auto told = [this] {
    std::vector<ControlStreamId> streams;
    for (const CommandShard& command : EffectsOf<CommandShard>()) {
      const auto* const level = std::get_if<protocol::SetLogLevel>(&command.command);
      if (level == nullptr) continue;
      EXPECT_EQ(level->lowest, LogLevel::kDebug);
      EXPECT_EQ(command.sequence, 0u) << "it acknowledges no other command";
      streams.push_back(command.stream);
    }
    return streams;
  };
  using Streams = std::vector<ControlStreamId>;
  Attach(1, /*incarnation=*/60);
  EXPECT_EQ(told(), Streams()) << "nothing was set";
  ASSERT_TRUE(administration_.Change({.log_level = LogLevel::kDebug}, &effects_).ok());
  EXPECT_EQ(told(), (Streams{11, 12}));
  effects_.clear();
  Attach(1, /*incarnation=*/61);
  EXPECT_EQ(told(), Streams{12});
}

// Through the coordinator.
class EvictionTest : public RollbackTest {
 protected:
  EvictionTest() { StartJob(); }
};

TEST_F(EvictionTest, TheEvictedProcessIsOutAndARollbackAdmitsAnotherOne) {
  CompleteCheckpoint(100);
  ASSERT_TRUE(coordinator_.Evict({.rank = 1, .allow_rollback = true}, now_, &effects_).ok());
  const protocol::WorkerHeartbeat last = BeatOf(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(Beat(last).status()));
  Tick(absl::Milliseconds(10));
  EXPECT_EQ(coordinator_.term(), 1u);
  Join(3, JoinOf(1));
  ASSERT_TRUE(answers_.contains(3));
  EXPECT_THAT(answers_.at(3).status().message(), HasSubstr("an administrator evicted"));
  Join(4, JoinOf(1, /*nonce=*/77));
  EXPECT_FALSE(answers_.contains(4)) << "it waits for the other processes";
}

TEST_F(EvictionTest, WorkersHearTheLogLevel) {
  EXPECT_EQ(Beat(BeatOf(0))->log_level, std::nullopt);
  ASSERT_TRUE(coordinator_.Change({.log_level = LogLevel::kWarning}, &effects_).ok());
  EXPECT_EQ(Beat(BeatOf(0))->log_level, LogLevel::kWarning);
}

}  // namespace
}  // namespace sluice::server
