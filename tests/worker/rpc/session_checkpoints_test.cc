// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/session_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/temporary_folder.h"
#include "tests/worker/rpc/fake_server.h"

namespace sluice::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class SessionCheckpointsTest : public testing::Test {
 protected:
  // Without a folder, the job has no checkpoints.
  SessionCheckpoints Make(const std::string& dir) const {
    RemoteSessionOptions options;
    options.coordinator = server_.address();
    options.checkpoint.dir = dir;
    options.backoff_min = absl::Milliseconds(5);
    options.backoff_max = absl::Milliseconds(20);
    options.clock = &clock_;
    return SessionCheckpoints(options, Membership());
  }
  static absl::Status End(SessionCheckpoints* checkpoints, uint64_t step, bool due) {
    StepResult result;
    result.step = step;
    result.checkpoint_due = due;
    return checkpoints->StepEnded(result);
  }
  std::vector<protocol::CheckpointPart> PartsInHeartbeat(const SessionCheckpoints& from) const {
    protocol::WorkerHeartbeat heartbeat;
    from.FillHeartbeat(clock_.Now(), &heartbeat);
    return heartbeat.parts;
  }

  SteadyClock clock_;
  const TemporaryFolder folder_;
  FakeServer server_{FakeServer::Script()};
};

TEST_F(SessionCheckpointsTest, AJobWithoutCheckpointsHasNothingToDo) {
  SessionCheckpoints checkpoints = Make("");
  EXPECT_TRUE(End(&checkpoints, 3, /*due=*/false).ok());
  checkpoints.StepBegins(3);
  checkpoints.Follow({.shard = 0, .address = "127.0.0.1:1", .server_incarnation = 9});
  checkpoints.CancelStore();
  EXPECT_TRUE(checkpoints.Finish(absl::ZeroDuration()));
  EXPECT_THAT(PartsInHeartbeat(checkpoints), IsEmpty());
  EXPECT_EQ(checkpoints.store(), nullptr);
}

TEST_F(SessionCheckpointsTest, AWorkerWithoutAFolderCannotTakePart) {
  SessionCheckpoints checkpoints = Make("");
  const absl::Status status = End(&checkpoints, 3, /*due=*/true);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no checkpoint.dir"));
}

TEST_F(SessionCheckpointsTest, ACheckpointIsSavedOnceAndOnlyWhenDue) {
  SessionCheckpoints checkpoints = Make(folder_.path());
  const absl::Status early = checkpoints.TakeDue(2);
  EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(early.message()), HasSubstr("after step 2, but no checkpoint is due"));
  ASSERT_TRUE(End(&checkpoints, 3, /*due=*/true).ok());
  EXPECT_TRUE(checkpoints.TakeDue(3).ok());
  EXPECT_FALSE(checkpoints.TakeDue(3).ok());
  checkpoints.StepBegins(3);
  EXPECT_TRUE(checkpoints.Finish(absl::Seconds(100)));
  EXPECT_THAT(server_.parts(), IsEmpty()) << "nothing went wrong that the coordinator must know";
}

TEST_F(SessionCheckpointsTest, TheCoordinatorLearnsThatADueCheckpointWasNotSaved) {
  SessionCheckpoints checkpoints = Make(folder_.path());
  ASSERT_TRUE(End(&checkpoints, 3, /*due=*/true).ok());
  checkpoints.StepBegins(3);
  EXPECT_FALSE(checkpoints.TakeDue(3).ok()) << "it is too late";
  ASSERT_TRUE(checkpoints.Finish(absl::Seconds(100)));
  checkpoints.StepBegins(4);
  ASSERT_TRUE(checkpoints.Finish(absl::Seconds(100)));
  ASSERT_THAT(server_.parts(), SizeIs(1));
  EXPECT_EQ(server_.parts()[0].step(), 3u);
  EXPECT_THAT(server_.parts()[0].error(), HasSubstr("without SaveCheckpoint"));
}

TEST_F(SessionCheckpointsTest, HeartbeatsRepeatTheWrittenPart) {
  SessionCheckpoints checkpoints = Make(folder_.path());
  protocol::WorkerSnapshot snapshot;
  snapshot.step = 3;
  checkpoints.Write(std::move(snapshot), {});
  ASSERT_TRUE(checkpoints.Finish(absl::Seconds(100)));
  const std::vector<protocol::CheckpointPart> parts = PartsInHeartbeat(checkpoints);
  ASSERT_THAT(parts, SizeIs(1));
  EXPECT_EQ(parts[0].step, 3u);
  EXPECT_EQ(parts[0].error, "");
}

}  // namespace
}  // namespace sluice::worker
