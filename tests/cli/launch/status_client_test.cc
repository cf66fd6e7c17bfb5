// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/status_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cli/launch/free_port.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

class FakeCoordinator final : public v1::Coordinator::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusReply* reply) override {
    reply->set_world_size(3);
    return grpc::Status::OK;
  }
  grpc::Status RequestCheckpoint(grpc::ServerContext*, const v1::RequestCheckpointRequest* request,
                                 v1::RequestCheckpointReply* reply) override {
    if (request->job_name() != "mine") {
      return {grpc::StatusCode::FAILED_PRECONDITION, "the job has no checkpoint section"};
    }
    reply->set_step(40);
    return grpc::Status::OK;
  }
};

class CoordinatorQuestionsTest : public ::testing::Test {
 protected:
  CoordinatorQuestionsTest() {
    int port = 0;
    server_ = grpc::ServerBuilder()
                  .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port)
                  .RegisterService(&service_)
                  .BuildAndStart();
    client_ = std::make_unique<StatusClient>(absl::StrCat("127.0.0.1:", port));
  }

  FakeCoordinator service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<StatusClient> client_;
};

TEST_F(CoordinatorQuestionsTest, BothKindsOfQuestionAtOnce) {
  absl::StatusOr<uint64_t> step = uint64_t{0};
  EXPECT_FALSE(client_->WaitForCheckpoint(absl::ZeroDuration(), &step));  // No request was sent.
  client_->Ask(absl::Seconds(60));
  client_->AskCheckpoint("mine", absl::Seconds(60));
  ASSERT_TRUE(client_->WaitForCheckpoint(absl::Seconds(60), &step));
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(*step, 40u);
  absl::StatusOr<v1::GetStatusReply> status = v1::GetStatusReply();
  ASSERT_TRUE(client_->WaitForStatus(absl::Seconds(60), &status));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->world_size(), 3u);
}

TEST_F(CoordinatorQuestionsTest, SaysWhyThereIsNoCheckpoint) {
  client_->AskCheckpoint("other", absl::Seconds(60));
  absl::StatusOr<uint64_t> step = uint64_t{0};
  ASSERT_TRUE(client_->WaitForCheckpoint(absl::Seconds(60), &step));
  EXPECT_EQ(step.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(step.status().message()), HasSubstr("no checkpoint section"));
}

TEST(CoordinatorQuestionTest, ACoordinatorThatComesLaterIsFoundAtTheNextQuestion) {
  absl::StatusOr<FreePort> port = FreePort::Reserve();
  ASSERT_TRUE(port.ok()) << port.status();
  const std::string address = absl::StrCat("127.0.0.1:", port->port());
  StatusClient client(address);
  absl::StatusOr<v1::GetStatusReply> answer = v1::GetStatusReply();
  for (int i = 0; i < 5; ++i) {
    client.Ask(absl::Seconds(60));
    ASSERT_TRUE(client.WaitForStatus(absl::Seconds(60), &answer));
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  }
  ASSERT_TRUE(port->Share().ok());
  FakeCoordinator service;
  const std::unique_ptr<grpc::Server> server =
      grpc::ServerBuilder()
          .AddListeningPort(address, grpc::InsecureServerCredentials())
          .RegisterService(&service)
          .BuildAndStart();
  ASSERT_NE(server, nullptr);
  client.Ask(absl::Seconds(60));
  ASSERT_TRUE(client.WaitForStatus(absl::Seconds(60), &answer));
  EXPECT_TRUE(answer.ok()) << answer.status();
}

TEST_F(CoordinatorQuestionsTest, MayBeEndedWithQuestionsOut) {
  client_->Ask(absl::Seconds(60));
  client_->AskCheckpoint("mine", absl::Seconds(60));
  client_.reset();
}

}  // namespace
}  // namespace sluice::cli
