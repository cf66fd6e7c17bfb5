// SPDX-License-Identifier: Apache-2.0
#include "cli/drain.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/mutex.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(WhyNoCheckpointTest, SaysWhoMayRequestOne) {
  const std::string text = WhyNoCheckpoint(
      absl::PermissionDeniedError("no checkpoint from a:1: it needs the role administrator"),
      absl::Minutes(10));
  EXPECT_THAT(text, StartsWith("no checkpoint from a:1: it needs the role administrator. Only an "
                               "administrator may request a checkpoint"));
  EXPECT_THAT(text, HasSubstr("--check"));
}

TEST(WhyNoCheckpointTest, SaysThatTheWaitIsOver) {
  EXPECT_THAT(WhyNoCheckpoint(absl::DeadlineExceededError("Deadline Exceeded"), absl::Minutes(2)),
              StartsWith("the checkpoint was not complete within 2m (--timeout)"));
}

TEST(WhyNoCheckpointTest, EscapesTextsOfOtherProcesses) {
  EXPECT_THAT(WhyNoCheckpoint(absl::UnavailableError("\x1b[2J"), absl::Minutes(2)),
              Not(HasSubstr("\x1b")));
}

// A coordinator of a job with one shard, whose requested checkpoint is complete directly after it
// has answered a second request for the status.
class FakeCoordinator final : public v1::Coordinator::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusReply* reply) override {
    reply->set_job_name("mine");
    reply->set_phase(v1::JOB_PHASE_RUNNING);
    reply->add_shards()->set_attached(true);
    reply->set_recovery_class("rollback");
    MutexLock lock(&mutex_);
    reply->set_checkpoint_step(checkpoint_);
    if (++answers_ == 2) second_answer_.Notify();
    return grpc::Status::OK;
  }
  grpc::Status RequestCheckpoint(grpc::ServerContext*, const v1::RequestCheckpointRequest*,
                                 v1::RequestCheckpointReply* reply) override {
    second_answer_.WaitForNotification();
    MutexLock lock(&mutex_);
    checkpoint_ = 40;
    reply->set_step(40);
    return grpc::Status::OK;
  }

 private:
  absl::Notification second_answer_;
  Mutex mutex_;
  int answers_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t checkpoint_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(DrainShardTest, AnswersFromAStatusAfterTheCheckpoint) {
  FakeCoordinator service;
  int port = 0;
  const std::unique_ptr<grpc::Server> server =
      grpc::ServerBuilder()
          .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port)
          .RegisterService(&service)
          .BuildAndStart();
  std::FILE* const out = std::tmpfile();
  ASSERT_NE(out, nullptr);
  DrainOptions options;
  options.status.coordinator = absl::StrCat("127.0.0.1:", port);
  options.status.console = {.out = out, .err = stderr};
  EXPECT_EQ(DrainShard(options), 0);
  std::rewind(out);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  EXPECT_THAT(text, HasSubstr("the checkpoint after step 40"));
  std::fclose(out);
}

}  // namespace
}  // namespace sluice::cli
