// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/shard_host.h"

#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "tests/rpc/host_fixture.h"
#include "tests/server/rpc/slow_copy.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ShardHostTest : public HostFixture {
 protected:
  // Returns a host that has run `steps` steps of term 0 and has named a checkpoint after step 3.
  std::unique_ptr<ShardHost> SavedAfterThree(uint64_t steps) {
    std::unique_ptr<ShardHost> host = MakeHost();
    Check(host->Start(StartOf(0, 0)).ok(), "a job starts");
    Check(host->NameCheckpoint(3).ok(), "shard 0 names a checkpoint");
    for (uint64_t step = 1; step <= steps; ++step) RunStep(host.get(), 0, step);
    return host;
  }
};

TEST_F(ShardHostTest, WritesItsPartAndGoesOnFromItBitForBit) {
  const std::unique_ptr<ShardHost> undisturbed = MakeHost();
  ASSERT_TRUE(undisturbed->Start(StartOf(0, 0)).ok());
  std::vector<std::string> expected(1);
  for (uint64_t step = 1; step <= 6; ++step) {
    expected.push_back(RunStep(undisturbed.get(), 0, step));
  }

  std::unique_ptr<ShardHost> host = SavedAfterThree(5);
  EXPECT_THAT(named(), ElementsAre(3));
  const protocol::CheckpointPart part = AwaitPart();
  EXPECT_EQ(part.error, "");
  EXPECT_EQ(part.name, "shard-0-term-0.state");
  EXPECT_EQ(part.step, 3u);
  EXPECT_EQ(part.bytes, std::filesystem::file_size(PathOf(part)));
  Complete(part);

  // The shard must continue in three cases: in the same process after a rollback, in the same
  // process that missed the suspension, and in a new process.
  host->Suspend(1, "rank 0 was lost");
  EXPECT_FALSE(host->started());
  EXPECT_EQ(host->CheckSender(SenderOf(0)).code(), absl::StatusCode::kUnavailable);
  for (const uint32_t term : {1u, 2u, 3u}) {
    if (term == 3) host = MakeHost();
    const absl::Status started = host->Start(StartOf(term, 3));
    ASSERT_TRUE(started.ok()) << started;
    EXPECT_EQ(host->Health().highest_closed_step, 3u);
    EXPECT_EQ(host->Health().highest_open_step, 4u);
    for (uint64_t step = 4; step <= 6; ++step) {
      EXPECT_EQ(RunStep(host.get(), term, step), expected[step]) << term << ", step " << step;
    }
  }
}

TEST_F(ShardHostTest, TheStepsAfterwardsWouldDifferWithoutTheSnapshot) {
  const std::unique_ptr<ShardHost> host = SavedAfterThree(3);
  const std::string fourth = RunStep(host.get(), 0, 4);
  const std::unique_ptr<ShardHost> fresh = MakeHost();
  protocol::StartShard start = StartOf(0, 0);
  start.first_step = 4;
  ASSERT_TRUE(fresh->Start(start).ok());
  EXPECT_NE(RunStep(fresh.get(), 0, 4), fourth);
}

TEST_F(ShardHostTest, ACheckpointThatIsNotThereYetIsAwaited) {
  std::unique_ptr<ShardHost> host = SavedAfterThree(3);
  const protocol::CheckpointPart third = AwaitPart();
  EXPECT_EQ(host->Start(StartOf(1, 3)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(untold_parts(), 0u) << "the checkpoint may be intact";
  EXPECT_THAT(host->Health().disk_wait.what, HasSubstr("checkpoint after step 3"));
  EXPECT_THAT(host->Health().disk_wait.trouble, HasSubstr("manifest.json"));
  Complete(third);
  EXPECT_TRUE(host->Start(StartOf(1, 3)).ok());
  EXPECT_EQ(host->Health().disk_wait.what, "");
}

// While a large core is copied, the lease must not expire and gRPC threads must not block.
TEST_F(ShardHostTest, OthersAreNotKeptWaitingWhileItsCoreIsCopied) {
  const std::unique_ptr<ShardHost> undisturbed = MakeHost();
  ASSERT_TRUE(undisturbed->Start(StartOf(0, 0)).ok());
  std::string expected;
  for (uint64_t step = 1; step <= 4; ++step) expected = RunStep(undisturbed.get(), 0, step);

  SlowCopy copy;
  before_copy_ = copy.hook();
  const std::unique_ptr<ShardHost> host = SavedAfterThree(2);
  std::thread third([&] { host->Handle(/*stream=*/1, WorkOf(0, 3)); });
  EXPECT_TRUE(copy.AwaitBegin()) << "no snapshot was taken after step 3";
  std::future<protocol::ShardHealthReport> others = std::async(std::launch::async, [&] {
    host->Tick();
    host->Handle(/*stream=*/1, WorkOf(0, 4));
    host->Closed(/*stream=*/1);
    EXPECT_TRUE(host->started());
    EXPECT_TRUE(host->work().running);
    EXPECT_TRUE(host->CheckSender(SenderOf(0)).ok());
    return host->Health();
  });
  EXPECT_EQ(others.wait_for(kCopyPatience), std::future_status::ready)
      << "no call may wait for the copy";
  // Only calls that change the core and return a result wait for the copy.
  std::future<absl::Status> members =
      std::async(std::launch::async, [&] { return host->SetMembership(2, {100}); });
  copy.LetEnd();
  third.join();
  EXPECT_EQ(others.get().highest_closed_step, 3u)
      << "step 4 does not close before the copy is made";
  EXPECT_TRUE(members.get().ok());
  EXPECT_EQ(host->Health().highest_closed_step, 4u);
  protocol::ExchangeRequest fourth = WorkOf(0, 4);
  fourth.sender.generation = 2;
  EXPECT_EQ(ResultOf(host.get(), fourth), expected);

  // The snapshot contains nothing of step 4.
  Complete(AwaitPart());
  ASSERT_TRUE(host->Start(StartOf(1, 3)).ok());
  EXPECT_EQ(RunStep(host.get(), 1, 4), expected);
}

TEST_F(ShardHostTest, ADamagedPartIsReportedAndAnEarlierOneWillDo) {
  // With this setting, a missing part counts as lost.
  job_.server.rejoin_timeout = absl::ZeroDuration();
  std::unique_ptr<ShardHost> host = SavedAfterThree(3);
  const protocol::CheckpointPart third = AwaitPart();
  Complete(third);
  ASSERT_TRUE(host->NameCheckpoint(0).ok());
  for (uint64_t step = 4; step <= 6; ++step) RunStep(host.get(), 0, step);
  const protocol::CheckpointPart sixth = AwaitPart();
  EXPECT_EQ(sixth.step, 6u);
  Complete(sixth);
  Damage(sixth);
  EXPECT_EQ(host->Start(StartOf(1, 6)).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(host->started());
  const protocol::CheckpointPart report = AwaitPart();
  EXPECT_EQ(report.term, 1u);
  EXPECT_EQ(report.step, 6u);
  EXPECT_EQ(report.name, "shard-0-term-1.state") << "the coordinator knows the part by this name";
  EXPECT_THAT(report.error, HasSubstr(PathOf(sixth)));
  EXPECT_TRUE(host->Start(StartOf(2, 3)).ok());

  std::filesystem::remove(PathOf(third));
  EXPECT_EQ(host->Start(StartOf(3, 3)).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(AwaitPart().error, HasSubstr(PathOf(third)));
  EXPECT_EQ(host->Start(StartOf(4, 9)).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(AwaitPart().error, HasSubstr("step-000000000009"));
  EXPECT_TRUE(host->Start(StartOf(5, 0)).ok()) << "the start needs no checkpoint";
}

TEST_F(ShardHostTest, AnotherCodecIsRefusedRatherThanTakenForDamage) {
  const std::unique_ptr<ShardHost> first = SavedAfterThree(3);
  Complete(AwaitPart());
  job_.exchange.compression.downlink = *compress::ParseCodecSpec("topk:50%/ef");
  const absl::Status refused = MakeHost()->Start(StartOf(1, 3));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot continue from the checkpoint"));
  EXPECT_EQ(untold_parts(), 0u);
  job_.checkpoint.dir.clear();
  EXPECT_EQ(MakeHost()->Start(StartOf(1, 3)).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ShardHostTest, TermsOnlyRiseAndEachHasOneCoordinator) {
  const std::unique_ptr<ShardHost> host = MakeHost();
  ASSERT_TRUE(host->Start(StartOf(2, 0)).ok());
  RunStep(host.get(), 2, 1);
  EXPECT_TRUE(host->Start(StartOf(2, 0)).ok()) << "a repeated start is accepted";
  host->Suspend(2, "told again too");
  host->Suspend(1, "long over");
  EXPECT_EQ(host->Health().highest_closed_step, 1u) << "the repeated commands change nothing";
  EXPECT_EQ(host->Start(StartOf(1, 0)).code(), absl::StatusCode::kFailedPrecondition);
  protocol::StartShard usurper = StartOf(2, 0);
  usurper.coordinator_incarnation = 4;
  EXPECT_TRUE(host->Start(usurper).ok()) << "the coordinator was restarted";
  EXPECT_EQ(host->Health().highest_closed_step, 1u) << "the shard's state must not change";
  EXPECT_EQ(host->Start(StartOf(2, 0)).code(), absl::StatusCode::kFailedPrecondition)
      << "the previous coordinator is fenced";
  usurper.term = 3;
  EXPECT_TRUE(host->Start(usurper).ok());
  usurper.term = 4;
  usurper.job_uid = 1;
  EXPECT_EQ(host->Start(usurper).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ShardHostTest, ACoordinatorThatWasStartedAgainBringsTheMembership) {
  const std::unique_ptr<ShardHost> host = MakeHost();
  EXPECT_FALSE(host->work().running);
  ASSERT_TRUE(host->Start(StartOf(0, 0)).ok());
  const std::string first = RunStep(host.get(), 0, 1);
  EXPECT_TRUE(host->work().running);
  EXPECT_EQ(host->work().job_uid, kHostJob);
  protocol::StartShard again = StartOf(0, 0);
  again.coordinator_incarnation = 4;
  again.replay = true;
  again.generation = 2;
  again.incarnations = {200};
  ASSERT_TRUE(host->Start(again).ok());
  EXPECT_EQ(host->CheckSender(SenderOf(0)).code(), absl::StatusCode::kFailedPrecondition);
  protocol::ExchangeRequest of_successor = WorkOf(0, 1);
  of_successor.sender.incarnation = 200;
  of_successor.sender.generation = 2;
  EXPECT_EQ(ResultOf(host.get(), of_successor), first) << "the shard must keep its results";
  host->Suspend(1, "");
  EXPECT_FALSE(host->work().running);
  EXPECT_EQ(host->work().term, 1u);
}

TEST_F(ShardHostTest, KeepsResultsUntilTheyAreReleasedAsTheJobFileAllows) {
  const std::unique_ptr<ShardHost> host = SavedAfterThree(5);
  EXPECT_EQ(host->Health().results_from, 1u);
  EXPECT_EQ(host->Stats().log_limit, job_.checkpoint.replay_limit);
  host->ReleaseResults(3);
  EXPECT_EQ(host->Health().results_from, 4u);
  AwaitPart();

  job_.server.max_memory = 2 << 20;
  job_.checkpoint.replay_limit = 1 << 30;
  const std::unique_ptr<ShardHost> small = MakeHost();
  ASSERT_TRUE(small->Start(StartOf(0, 0)).ok());
  EXPECT_LE(small->Stats().log_limit, uint64_t{1} << 20);
  job_.checkpoint.replay_limit = 0;
  const std::unique_ptr<ShardHost> none = MakeHost();
  ASSERT_TRUE(none->Start(StartOf(0, 0)).ok());
  EXPECT_EQ(none->Health().results_from, 0u);
}

TEST_F(ShardHostTest, CommandsThatComeWhereThereIsNoCoreDoNoHarm) {
  const std::unique_ptr<ShardHost> host = MakeHost();
  host->ReleaseResults(3);
  EXPECT_TRUE(host->SetMembership(2, {200}).ok());
  EXPECT_TRUE(host->NameCheckpoint(0).ok());
  EXPECT_FALSE(host->started());
  ASSERT_TRUE(host->Start(StartOf(0, 0)).ok());
  EXPECT_FALSE(RunStep(host.get(), 0, 1).empty());
}

TEST_F(ShardHostTest, ASuccessorThatSendsOtherBytesIsReported) {
  const std::unique_ptr<ShardHost> host = MakeHost();
  ASSERT_TRUE(host->Start(StartOf(0, 0)).ok());
  RunStep(host.get(), 0, 1);
  ASSERT_TRUE(host->SetMembership(2, {200}).ok());
  protocol::ExchangeRequest other;
  other.sender = SenderOf(0);
  other.sender.incarnation = 200;
  other.step = 1;
  other.frames = {NoneFrame({9, 9, 9, 9, 9, 9, 9, 9})};
  host->Handle(/*stream=*/2, std::move(other));
  EXPECT_EQ(not_reproducible(), 1u);
}

TEST_F(ShardHostTest, AFolderThatCannotBeWrittenIsReportedAndTrainingGoesOn) {
  std::ofstream(job_.checkpoint.dir) << "a file where the folder should be";
  const std::unique_ptr<ShardHost> host = SavedAfterThree(3);
  const protocol::CheckpointPart part = AwaitPart();
  EXPECT_EQ(part.step, 3u);
  EXPECT_EQ(part.name, "shard-0-term-0.state");
  EXPECT_THAT(part.error, HasSubstr(job_.checkpoint.dir));
  RunStep(host.get(), 0, 4);
}

// With store `shards`, a folder belongs to one run, and only run.json names that run. If run.json
// is missing, the folder must be refused and stay unchanged.
TEST_F(ShardHostTest, AFolderOfAnUnknownRunIsRefusedAndStaysAsItIs) {
  job_.checkpoint.store = protocol::CheckpointStore::kShards;
  const std::string folder = protocol::PartsFolder(job_.checkpoint, 0);
  ASSERT_TRUE(
      protocol::WritePart(folder, 0, 10, protocol::ShardPartName(0, 0), "of some run").ok());
  const std::string record = folder + "/run.json";
  for (const char* text : {"", "{\"format\": \"sluice run\"", "a folder in its place"}) {
    std::filesystem::remove_all(record);
    if (text[0] == '{') std::ofstream(record) << text;
    if (text[0] == 'a') std::filesystem::create_directory(record);
    const std::unique_ptr<ShardHost> host = MakeHost();
    const absl::Status started = host->Start(StartOf(0, 0));
    EXPECT_THAT(std::string(started.message()), HasSubstr(folder)) << text;
    EXPECT_TRUE(absl::IsFailedPrecondition(started)) << text;
    host->KeepCheckpoints({}, 100);
    EXPECT_EQ(std::filesystem::is_directory(record), text[0] == 'a');
    EXPECT_EQ(std::filesystem::is_regular_file(record), text[0] == '{');
    EXPECT_THAT(protocol::ListCheckpoints(folder).value(), testing::ElementsAre(10));
  }
}

// A folder must be claimed before a part is written there. Otherwise the part could not be
// distinguished from those of another run.
TEST_F(ShardHostTest, AFolderIsClaimedBeforeAPartIsWritten) {
  job_.checkpoint.store = protocol::CheckpointStore::kShards;
  std::ofstream(job_.checkpoint.dir) << "a file where the folder should be";
  const std::unique_ptr<ShardHost> host = SavedAfterThree(3);
  EXPECT_THAT(AwaitPart().error, HasSubstr(job_.checkpoint.dir));
  std::filesystem::remove(job_.checkpoint.dir);
  protocol::CheckpointPart part;
  for (uint64_t step = 4; part.bytes == 0; step += 3) {
    ASSERT_LT(step, 1000u) << part.error;
    ASSERT_TRUE(host->NameCheckpoint(step).ok());
    for (uint64_t i = 0; i < 3; ++i) RunStep(host.get(), 0, step + i);
    part = AwaitPart();  // The writer may still be busy with the previous part.
  }
  EXPECT_EQ(protocol::ReadRunRecord(protocol::PartsFolder(job_.checkpoint, 0)).value().job_uid,
            kHostJob);
}

TEST_F(ShardHostTest, AShardWithoutChunksStartsInAJobWithCheckpoints) {
  job_.shards = 2;  // There is only one chunk, which shard 0 has.
  ShardHost host(
      {.shard = 1, .job = job_, .on_alarm = [](const std::string& text) { ADD_FAILURE() << text; }},
      &clock_, Logger("test"));
  const absl::Status started = host.Start(StartOf(0, 0));
  EXPECT_TRUE(started.ok()) << started;
}

TEST_F(ShardHostTest, AStreamThatIsTakenOverEndsAndItsClientGoesOnWithAnother) {
  const std::unique_ptr<ShardHost> host = MakeHost();
  ASSERT_TRUE(host->Start(StartOf(0, 0)).ok());
  HostStream first(host.get());
  EXPECT_EQ(first.Ask(WorkOf(0, 1)).outcome(), v1::OUTCOME_RESULT);
  HostStream second(host.get());
  EXPECT_EQ(second.Ask(WorkOf(0, 2)).outcome(), v1::OUTCOME_RESULT);
  const grpc::Status ended = first.AwaitEnd();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(ended.error_message(), HasSubstr("a newer stream has taken over rank 0"));
  HostStream third(host.get());
  EXPECT_EQ(third.Ask(WorkOf(0, 3)).outcome(), v1::OUTCOME_RESULT);
  EXPECT_EQ(second.AwaitEnd().error_code(), grpc::StatusCode::ABORTED);
}

// Measurements need the arrival of a rank's newest steps. A step that no rank
// can reach must not take their place.
TEST_F(ShardHostTest, AStepOfARefusedRequestIsNotRecorded) {
  const std::unique_ptr<ShardHost> host = MakeHost();
  ASSERT_TRUE(host->Start(StartOf(0, 0)).ok());
  const auto measured = [&] { return host->Links().queue_counts; };
  const auto none = measured();
  protocol::ExchangeRequest foreign = WorkOf(0, 1);
  foreign.sender.incarnation = 101;
  EXPECT_EQ(HostStream(host.get()).Ask(foreign).outcome(), v1::OUTCOME_FENCED);
  EXPECT_EQ(HostStream(host.get()).Ask(WorkOf(0, uint64_t{1} << 62)).outcome(),
            v1::OUTCOME_INVALID);
  EXPECT_EQ(measured(), none);
  EXPECT_EQ(HostStream(host.get()).Ask(WorkOf(0, 1)).outcome(), v1::OUTCOME_RESULT);
  EXPECT_NE(measured(), none);
}

TEST_F(ShardHostTest, WithoutAFolderNoCheckpointIsNamed) {
  job_.checkpoint.dir.clear();
  const std::unique_ptr<ShardHost> host = MakeHost();
  ASSERT_TRUE(host->Start(StartOf(0, 0)).ok());
  EXPECT_EQ(host->NameCheckpoint(3).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sluice::server
