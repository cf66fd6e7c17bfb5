// SPDX-License-Identifier: Apache-2.0
// Tests what a worker tells the coordinator of a checkpoint that it cannot read, and what it does
// with the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "tests/temporary_folder.h"
#include "tests/worker/rpc/fake_server.h"
#include "worker/rpc/remote_client.h"

namespace sluice::worker {
namespace {

class RestoreReportTest : public testing::Test {
 protected:
  RestoreReportTest() {
    const std::string step = protocol::StepFolder(folder_.path(), 3);
    std::filesystem::create_directories(step);
    std::ofstream(step + "/manifest.json") << "damaged";
  }

  std::unique_ptr<JobClient> MakeClient(const FakeServer& server) const {
    RemoteSessionOptions options;
    options.coordinator = server.address();
    options.job_name = "test";
    options.exchange.compression.min_elements = 0;
    options.checkpoint.dir = folder_.path();
    options.server.join_timeout = absl::Seconds(100);
    options.server.connect_timeout = absl::Seconds(100);
    options.server.rejoin_timeout = absl::Seconds(100);
    options.backoff_min = absl::Milliseconds(5);
    options.backoff_max = absl::Milliseconds(20);
    return MakeRemoteClient(std::move(options));
  }
  static absl::Status Join(JobClient* client) {
    return client->Join({{.name = "a", .shape = {8}, .strides = {}}}, "").status();
  }

  const TemporaryFolder folder_;
};

TEST_F(RestoreReportTest, WhileAServerExaminesThePartItIsReportedAgain) {
  FakeServer server({.term = 1, .restore_step = 3, .reports_early = 2});
  const std::unique_ptr<JobClient> client = MakeClient(server);
  const absl::Status status = Join(client.get());
  EXPECT_TRUE(IsRollback(status)) << status;
  const std::vector<v1::CheckpointPart> parts = server.parts();
  ASSERT_EQ(parts.size(), 3u);
  for (const v1::CheckpointPart& part : parts) {
    EXPECT_EQ(part.name(), "manifest.json");
    EXPECT_EQ(part.step(), 3u);
    EXPECT_TRUE(part.unreadable());
  }
}

// Only this worker cannot read the part, so another process may take its rank.
TEST_F(RestoreReportTest, ARefusedReportEndsTheWorkerAndNotTheJob) {
  FakeServer server({.term = 1,
                     .restore_step = 3,
                     .report = {grpc::StatusCode::FAILED_PRECONDITION, "it is intact"}});
  const std::unique_ptr<JobClient> client = MakeClient(server);
  const absl::Status status = Join(client.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_FALSE(IsRollback(status));
  client->Abandon("training failed");
  EXPECT_THAT(server.leaves(), testing::IsEmpty());
  EXPECT_EQ(server.parts().size(), 1u);
}

}  // namespace
}  // namespace sluice::worker
