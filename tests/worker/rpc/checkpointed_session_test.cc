// SPDX-License-Identifier: Apache-2.0
// Tests RemoteSession in a job with checkpoints: saves, restores and rollbacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/snapshot_format.h"
#include "tests/worker/rpc/deaf_port.h"
#include "tests/worker/rpc/fake_server.h"
#include "tests/worker/rpc/joined_session.h"
#include "worker/rpc/remote_client.h"

namespace sluice::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kCheckpointedSessionSize = 64;
constexpr uint64_t kJobUid = 77;  // Equal to the fake server's.

protocol::TensorTable CheckpointedSessionTable() {
  return {{.name = "a", .shape = {kCheckpointedSessionSize}, .strides = {}},
          {.name = "b", .shape = {kCheckpointedSessionSize}, .strides = {}}};
}

class CheckpointedSessionTest : public testing::Test {
 protected:
  CheckpointedSessionTest()
      : dir_(absl::StrCat(testing::TempDir(), "/",
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(dir_);
  }

  RemoteSessionOptions Options(const FakeServer& server) const {
    RemoteSessionOptions options;
    options.coordinator = server.address();
    options.job_name = "test";
    options.exchange.compression.min_elements = 0;
    options.exchange.compression.uplink = *compress::ParseCodecSpec("topk:5%");
    options.checkpoint.dir = dir_;
    options.server.join_timeout = absl::Seconds(100);
    options.server.connect_timeout = absl::Seconds(100);
    options.server.rejoin_timeout = absl::Seconds(100);
    options.backoff_min = absl::Milliseconds(5);
    options.backoff_max = absl::Milliseconds(20);
    return options;
  }

  static absl::StatusOr<StepResult> Step(Session* session, uint64_t step) {
    std::vector<float> gradients[2];
    for (size_t tensor = 0; tensor < 2; ++tensor) {
      for (size_t i = 0; i < kCheckpointedSessionSize; ++i) {
        gradients[tensor].push_back(static_cast<float>((i * 37 + step * 11 + tensor) % 64));
      }
    }
    for (const uint32_t tensor : {1, 0}) {
      if (absl::Status status = session->Submit(tensor, gradients[tensor]); !status.ok()) {
        return status;
      }
    }
    return session->Wait();
  }

  // Returns all frames that the worker sent in `step`.
  static std::vector<std::string> FramesOf(const FakeServer& server, uint64_t step) {
    std::vector<std::string> frames;
    for (const v1::ExchangeRequest& request : server.exchanges()) {
      if (request.step() != step) continue;
      for (const v1::Contribution& c : request.contributions()) frames.push_back(c.frame());
    }
    return frames;
  }

  // Writes the manifest of a complete checkpoint from reported parts, as a coordinator does.
  protocol::CheckpointManifest WriteManifestOf(const std::vector<v1::CheckpointPart>& parts) const {
    protocol::CheckpointManifest manifest;
    manifest.job_name = "test";
    manifest.job_uid = kJobUid;
    manifest.world_size = 1;
    manifest.shards = 1;
    for (const v1::CheckpointPart& part : parts) {
      manifest.term = part.term();
      manifest.step = part.step();
      manifest.parts.push_back({.term = part.term(),
                                .step = part.step(),
                                .name = part.name(),
                                .bytes = part.bytes(),
                                .checksum = part.checksum(),
                                .error = {}});
    }
    std::sort(manifest.parts.begin(), manifest.parts.end(),
              [](const protocol::CheckpointPart& a, const protocol::CheckpointPart& b) {
                return a.name < b.name;
              });
    const absl::Status written = protocol::WriteManifest(dir_, manifest);
    EXPECT_TRUE(written.ok()) << written;
    return manifest;
  }

  // Runs three steps, a checkpoint and another step. Returns the frames of that step.
  std::vector<std::string> TrainAndSave() {
    FakeServer server({.name_at_step = 1, .checkpoint_step = 3});
    const JoinedSession session(Options(server), CheckpointedSessionTable());
    EXPECT_TRUE(session.ok()) << session.status();
    if (!session.ok()) return {};
    for (uint64_t step = 1; step <= 3; ++step) EXPECT_TRUE(Step(session.get(), step).ok());
    EXPECT_TRUE(session->SaveCheckpoint("state", {{"parameters.pt", "weights"}}).ok());
    EXPECT_TRUE(Step(session.get(), 4).ok());
    server.AwaitParts(2);
    manifest_ = WriteManifestOf(server.parts());
    return FramesOf(server, 4);
  }

  const std::string dir_;
  protocol::CheckpointManifest manifest_;
};

TEST_F(CheckpointedSessionTest, SavesAndReportsItsPartWhenItIsDue) {
  FakeServer server({.term = 2, .name_at_step = 1, .checkpoint_step = 3});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  for (uint64_t step = 1; step <= 4; ++step) {
    const absl::StatusOr<StepResult> result = Step(session.get(), step);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->checkpoint_due, step == 3);
    if (!result->checkpoint_due) continue;
    ASSERT_TRUE(session->SaveCheckpoint("state", {{"parameters.pt", "weights"}}).ok());
  }
  server.AwaitParts(2);
  const std::vector<v1::CheckpointPart> parts = server.parts();
  EXPECT_EQ(parts[0].name(), "parameters.pt");
  EXPECT_EQ(parts[1].name(), "worker-0-term-2.state");
  for (const v1::CheckpointPart& part : parts) {
    EXPECT_EQ(part.step(), 3u);
    EXPECT_EQ(part.term(), 2u);
    EXPECT_THAT(part.error(), IsEmpty());
  }
  const protocol::CheckpointManifest manifest = WriteManifestOf(parts);
  EXPECT_EQ(*protocol::ReadPart(dir_, manifest, "parameters.pt"), "weights");
  const absl::StatusOr<protocol::WorkerSnapshot> snapshot =
      protocol::ParseWorkerSnapshot(*protocol::ReadPart(dir_, manifest, "worker-0-term-2.state"));
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(snapshot->job_uid, kJobUid);
  EXPECT_EQ(snapshot->step, 3u);
  EXPECT_EQ(snapshot->trainer, "state");
  EXPECT_EQ(snapshot->uplink.chunks.size(), 2u);
  for (const v1::ExchangeRequest& request : server.exchanges()) {
    // The first result of step 1 names the checkpoint. The worker may send the second request
    // before it has that result.
    if (request.step() == 1 && request.bundle() == 1) continue;
    EXPECT_EQ(request.checkpoint_step(), request.step() == 2 || request.step() == 3 ? 3u : 0u);
  }
}

TEST_F(CheckpointedSessionTest, RestoresAndGoesOnWithTheSameBytes) {
  const std::vector<std::string> undisturbed = TrainAndSave();
  FakeServer server({.term = 1, .restore_step = 3});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session.info().first_step, 4u);
  EXPECT_EQ(session.info().restored_step, 3u);
  EXPECT_EQ(session.info().restored, "state");
  const absl::StatusOr<StepResult> result = Step(session.get(), 4);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(FramesOf(server, 4), undisturbed);
  ASSERT_EQ(undisturbed.size(), 2u);
}

TEST_F(CheckpointedSessionTest, ADamagedPartIsReportedAndIsARollback) {
  (void)TrainAndSave();
  const std::string path = absl::StrCat(protocol::StepFolder(dir_, 3), "/worker-0-term-0.state");
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('\x55');
    file.put('\x56');
  }
  FakeServer server({.term = 1, .restore_step = 3});
  const std::unique_ptr<JobClient> client = MakeRemoteClient(Options(server));
  const absl::Status status = client->Join(CheckpointedSessionTable(), "").status();
  EXPECT_TRUE(IsRollback(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(client->Join(CheckpointedSessionTable(), "").status(), status);
  const std::vector<v1::CheckpointPart> parts = server.parts();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].step(), 3u);
  EXPECT_EQ(parts[0].term(), 1u);
  EXPECT_THAT(parts[0].error(), HasSubstr(path));
  EXPECT_THAT(server.leaves(), IsEmpty());
}

// The folder does not belong to the coordinator's run. Join must fail without a rollback, which
// would not help and would lose good checkpoints.
TEST_F(CheckpointedSessionTest, AFolderThatIsNotTheCoordinatorsEndsTheJob) {
  FakeServer server({.term = 1, .restore_step = 3});
  RemoteSessionOptions options = Options(server);
  options.server.rejoin_timeout = absl::Milliseconds(100);
  const absl::Status status =
      MakeRemoteClient(std::move(options))->Join(CheckpointedSessionTable(), "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(IsRollback(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("all servers and workers see"));
  EXPECT_THAT(server.parts(), IsEmpty());
  ASSERT_EQ(server.leaves().size(), 1u);
  EXPECT_FALSE(server.leaves()[0].finished());
}

TEST_F(CheckpointedSessionTest, AFolderThatIsMountedLateIsAwaited) {
  (void)TrainAndSave();
  const std::string away = absl::StrCat(dir_, "-away");
  std::filesystem::remove_all(away);
  std::filesystem::rename(dir_, away);
  FakeServer server({.term = 1, .restore_step = 3});
  std::thread mount([&] {
    const auto fails = [&] {
      const std::vector<v1::HeartbeatRequest> heartbeats = server.heartbeats();
      return !heartbeats.empty() && !heartbeats.back().disk_wait().trouble().empty();
    };
    while (!fails()) server.AwaitHeartbeat();
    std::filesystem::rename(away, dir_);
  });
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  mount.join();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session.info().restored, "state");
  const v1::HeartbeatRequest waiting = server.heartbeats().front();
  EXPECT_EQ(waiting.restoring_step(), 3u) << "the checkpoint must not be removed";
  EXPECT_THAT(waiting.disk_wait().what(), HasSubstr("checkpoint after step 3"));
  EXPECT_EQ(waiting.seconds_since_progress(), 0) << "a wait for the disk is no stall";
  while (server.heartbeats().back().restoring_step() != 0) server.AwaitHeartbeat();
  EXPECT_FALSE(server.heartbeats().back().has_disk_wait());
}

TEST_F(CheckpointedSessionTest, AnotherRunsCheckpointIsNotRestored) {
  (void)TrainAndSave();
  manifest_.job_uid = 5;
  ASSERT_TRUE(protocol::WriteManifest(dir_, manifest_).ok());
  FakeServer server({.term = 1, .restore_step = 3});
  const absl::Status status =
      MakeRemoteClient(Options(server))->Join(CheckpointedSessionTable(), "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is of run 5"));
}

TEST_F(CheckpointedSessionTest, AFullDiskIsToldAndTrainingGoesOn) {
  { std::ofstream file(dir_); }  // A file at the folder's path.
  FakeServer server({.name_at_step = 1, .checkpoint_step = 1});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(Step(session.get(), 1).ok());
  ASSERT_TRUE(session->SaveCheckpoint("state", {}).ok());
  ASSERT_TRUE(Step(session.get(), 2).ok());
  server.AwaitParts(1);
  EXPECT_THAT(server.parts()[0].error(), HasSubstr(dir_));
  EXPECT_EQ(server.parts()[0].step(), 1u);
  EXPECT_TRUE(session->Leave().ok());
}

// Heartbeats must repeat the failure, because its report may be lost.
TEST_F(CheckpointedSessionTest, HeartbeatsTellOfAPartThatCouldNotBeWritten) {
  { std::ofstream file(dir_); }  // A file at the folder's path.
  FakeServer server({.heartbeat_ms = 1, .name_at_step = 1, .checkpoint_step = 1});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(Step(session.get(), 1).ok());
  ASSERT_TRUE(session->SaveCheckpoint("state", {}).ok());
  server.AwaitParts(1);
  for (int times = 0; times < 2; ++times) server.AwaitHeartbeat();
  const v1::HeartbeatRequest last = server.heartbeats().back();
  ASSERT_EQ(last.parts_size(), 1);
  EXPECT_EQ(last.parts(0).step(), 1u);
  EXPECT_EQ(last.parts(0).name(), "worker-0-term-0.state");
  EXPECT_THAT(last.parts(0).error(), HasSubstr(dir_));
  EXPECT_FALSE(last.parts(0).unreadable());
}

// A relay saves its part of a checkpoint. Its report must wait until the rest, the rack's own
// checkpoint, is complete or has failed.
class RestOfCheckpointTest : public CheckpointedSessionTest {
 protected:
  // Saves after step 1, and waits until the session has asked twice about the rest.
  void SaveAndWait(FakeServer* server) {
    RemoteSessionOptions options = Options(*server);
    options.rest_of_checkpoint = [this](uint64_t step) -> std::optional<absl::Status> {
      EXPECT_EQ(step, 1u);
      MutexLock lock(&mutex_);
      ++asked_;
      changed_.SignalAll();
      return rest_;
    };
    session_.emplace(std::move(options), CheckpointedSessionTable());
    ASSERT_TRUE(session_->ok()) << session_->status();
    ASSERT_TRUE(Step(session_->get(), 1).ok());
    ASSERT_TRUE((*session_)->SaveCheckpoint("", {}).ok());
    MutexLock lock(&mutex_);
    while (asked_ < 2) changed_.Wait(&mutex_);
  }
  void Rest(absl::Status status) {
    MutexLock lock(&mutex_);
    rest_ = std::move(status);
  }

  Mutex mutex_;
  CondVar changed_;
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> rest_ ABSL_GUARDED_BY(mutex_);
  std::optional<JoinedSession> session_;
};

TEST_F(RestOfCheckpointTest, APartIsReportedOnceItIsThere) {
  FakeServer server({.heartbeat_ms = 1, .name_at_step = 1, .checkpoint_step = 1});
  SaveAndWait(&server);
  server.AwaitHeartbeat();
  EXPECT_THAT(server.parts(), IsEmpty());
  EXPECT_EQ(server.heartbeats().back().parts_size(), 0);
  Rest(absl::OkStatus());
  server.AwaitParts(1);
  EXPECT_EQ(server.parts()[0].step(), 1u);
  EXPECT_EQ(server.parts()[0].error(), "");
  for (int times = 0; times < 2; ++times) server.AwaitHeartbeat();
  EXPECT_EQ(server.heartbeats().back().parts_size(), 1);
}

TEST_F(RestOfCheckpointTest, APartFailsWithIt) {
  FakeServer server({.name_at_step = 1, .checkpoint_step = 1});
  SaveAndWait(&server);
  Rest(absl::UnavailableError("the rack has given it up"));
  server.AwaitParts(1);
  EXPECT_EQ(server.parts()[0].error(), "the rack has given it up");
}

TEST_F(RestOfCheckpointTest, NobodyWaitsForItAtTheEnd) {
  FakeServer server({.name_at_step = 1, .checkpoint_step = 1});
  SaveAndWait(&server);
  EXPECT_TRUE((*session_)->Leave().ok());
  EXPECT_THAT(server.parts(), IsEmpty());
}

TEST_F(CheckpointedSessionTest, AProgramThatDoesNotSaveIsTold) {
  FakeServer server({.name_at_step = 1, .checkpoint_step = 1});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(Step(session.get(), 1).ok());
  ASSERT_TRUE(Step(session.get(), 2).ok());
  server.AwaitParts(1);
  EXPECT_THAT(server.parts()[0].error(), HasSubstr("without SaveCheckpoint"));
  EXPECT_EQ(session->SaveCheckpoint("late", {}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CheckpointedSessionTest, LeaveWaitsForThePartsOfTheLastStep) {
  FakeServer server({.name_at_step = 1, .checkpoint_step = 1});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(Step(session.get(), 1).ok());
  ASSERT_TRUE(session->SaveCheckpoint(std::string(1 << 20, 's'), {}).ok());
  ASSERT_TRUE(session->Leave().ok());
  EXPECT_EQ(server.parts().size(), 1u);
}

TEST_F(CheckpointedSessionTest, AHigherTermInAHeartbeatIsARollback) {
  FakeServer server({.silent = true});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->Skip().ok());
  server.RaiseTerm(1);
  const absl::Status status = session->Wait().status();
  EXPECT_TRUE(IsRollback(status)) << status;
  EXPECT_EQ(session->Leave(), status);
}

TEST_F(CheckpointedSessionTest, AFenceOfAHigherTermIsARollback) {
  FakeServer server({.fence_term = 4});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  (void)session->Skip();
  const absl::Status status = session->Wait().status();
  EXPECT_TRUE(IsRollback(status)) << status;
}

TEST_F(CheckpointedSessionTest, LosingAShardIsARollback) {
  const DeafPort deaf;
  FakeServer server({});
  server.SetShards({server.address(), deaf.address()});
  RemoteSessionOptions options = Options(server);
  options.shards = 2;
  options.server.connect_timeout = absl::Milliseconds(1);
  options.server.rejoin_timeout = absl::Milliseconds(500);
  const absl::Time started = SteadyClock().Now();
  const JoinedSession session(options, CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->Skip().ok());
  const absl::Status status = session->Wait().status();
  EXPECT_TRUE(IsRollback(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1"));
  EXPECT_GE(SteadyClock().Now() - started, absl::Milliseconds(400));
}

TEST_F(CheckpointedSessionTest, LosingTheCoordinatorIsARollback) {
  FakeServer server(
      {.heartbeat = {grpc::StatusCode::UNAVAILABLE, "gone"}, .silent = true, .lease_ms = 50});
  RemoteSessionOptions options = Options(server);
  options.server.rejoin_timeout = absl::Milliseconds(500);
  const absl::Time started = SteadyClock().Now();
  const JoinedSession session(options, CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  (void)session->Skip();
  const absl::Status status = session->Wait().status();
  EXPECT_GE(SteadyClock().Now() - started, absl::Milliseconds(400));
  EXPECT_TRUE(IsRollback(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has not answered"));
}

TEST_F(CheckpointedSessionTest, AFailedJobIsNoRollback) {
  FakeServer server({.failure = "rank 1 diverged", .silent = true});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  (void)session->Skip();
  const absl::Status status = session->Wait().status();
  EXPECT_EQ(status.message(), "rank 1 diverged");
  EXPECT_FALSE(IsRollback(status));
}

TEST_F(CheckpointedSessionTest, RejoiningWaitsForTheCoordinator) {
  FakeServer server({.joins_unavailable = 20});
  RemoteSessionOptions options = Options(server);
  options.server.join_timeout = absl::Milliseconds(1);
  EXPECT_FALSE(MakeRemoteClient(options)->Join(CheckpointedSessionTable(), "").ok());
  options.rejoining = true;
  const JoinedSession session(options, CheckpointedSessionTable());
  EXPECT_TRUE(session.ok()) << session.status();
}

TEST_F(CheckpointedSessionTest, LeaveIsRepeatedUntilAllHaveFinished) {
  FakeServer server({.heartbeat_ms = 1, .leaves_early = 3});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(Step(session.get(), 1).ok());
  ASSERT_TRUE(session->Leave().ok());
  EXPECT_EQ(server.leaves().size(), 4u);
  for (const v1::LeaveRequest& leave : server.leaves()) EXPECT_TRUE(leave.finished());
}

TEST_F(CheckpointedSessionTest, WithoutCheckpointsLeaveIsSaidOnce) {
  FakeServer server({.leaves_early = 3});
  RemoteSessionOptions options = Options(server);
  options.checkpoint = {};
  const JoinedSession session(options, CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->Leave().ok());
  EXPECT_EQ(server.leaves().size(), 1u);
}

TEST_F(CheckpointedSessionTest, ARollbackFindsAWorkerThatWaitsToLeave) {
  FakeServer server({.heartbeat_ms = 1, .leaves_early = 1000000});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  std::thread lost([&] {
    server.AwaitLeaves(2);
    server.RaiseTerm(1);
  });
  const absl::Status status = session->Leave();
  lost.join();
  EXPECT_TRUE(IsRollback(status)) << status;
}

TEST_F(CheckpointedSessionTest, ASignalEndsTheWaitToLeave) {
  FakeServer server({.heartbeat_ms = 3600000, .leaves_early = 1000000});
  const JoinedSession session(Options(server), CheckpointedSessionTable());
  ASSERT_TRUE(session.ok()) << session.status();
  std::thread watcher([&] {
    server.AwaitLeaves(1);
    session->Abandon("stopped by a signal");
  });
  EXPECT_EQ(session->Leave().code(), absl::StatusCode::kCancelled);
  watcher.join();
  EXPECT_FALSE(server.leaves().back().finished());
}

}  // namespace
}  // namespace sluice::worker
