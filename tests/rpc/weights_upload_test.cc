// SPDX-License-Identifier: Apache-2.0
// Tests that followers get the parameters of a job whose workers keep them, with real sessions,
// servers and followers.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "follow/rpc/follower.h"
#include "follow/typed_weights.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/weights_messages.h"
#include "server/rpc/server.h"
#include "sluice/v1/weights.grpc.pb.h"
#include "tests/rpc/await.h"
#include "tests/worker/rpc/joined_session.h"
#include "worker/rpc/remote_client.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kEvery = 2;

job::JobSpec FollowedJob() {
  job::JobSpec job;
  job.name = "test";
  job.hash = 9;
  job.workers = 1;
  job.shards = 2;
  job.followers = {.types = {compress::ElementType::kFloat32}, .every = kEvery};
  job.exchange.compression.min_elements = 8;
  job.exchange.compression.layout = {.chunk_elements = 1000, .bundle_elements = 2000};
  job.server.heartbeat_interval = absl::Milliseconds(50);
  // The lease is so long that a busy machine causes no loss.
  job.server.lease_timeout = absl::Hours(1);
  return job;
}

protocol::TensorTable FollowedTensors() {
  return {{.name = "w", .shape = {50, 90}, .strides = {}, .dtype = protocol::DType::kFloat32},
          {.name = "b", .shape = {5}, .strides = {}, .dtype = protocol::DType::kFloat32}};
}

class WeightsUploadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (uint32_t shard = 0; shard < job_.shards; ++shard) {
      absl::StatusOr<std::unique_ptr<server::Server>> server =
          server::Server::Start({.job = job_,
                                 .shard = shard,
                                 .listen = "127.0.0.1:0",
                                 .coordinator = shard == 0 ? "" : servers_[0]->address(),
                                 .software_version = "1",
                                 .job_uid = 77},
                                &clock_);
      ASSERT_TRUE(server.ok()) << server.status();
      servers_.push_back(*std::move(server));
    }
  }
  void TearDown() override {
    while (!servers_.empty()) servers_.pop_back();
  }
  worker::RemoteSessionOptions Options() const {
    worker::RemoteSessionOptions options;
    options.coordinator = servers_[0]->address();
    options.job_name = job_.name;
    options.job_hash = job_.hash;
    options.shards = job_.shards;
    options.exchange.compression = job_.exchange.compression;
    options.followers = job_.followers;
    options.software_version = "1";
    return options;
  }
  // Trains one step, whose parameters are `step` and some that stay equal.
  void Step(const worker::JoinedSession& session, bool is_last = false) {
    ++step_;
    ASSERT_TRUE(session->Submit(1, b_).ok());
    ASSERT_TRUE(session->Submit(0, w_).ok());
    const auto result = session->Wait();
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->step, step_);
    for (size_t i = 0; i < w_.size(); i += 100) w_[i] = static_cast<float>(step_);
    published_[step_] = Model();
    if (!session->WantsWeights(step_, is_last)) return;
    session->PublishWeights(step_, {absl::MakeConstSpan(w_), absl::MakeConstSpan(b_)}, is_last);
  }
  std::vector<std::byte> Model() const {
    std::vector<float> all = w_;
    all.insert(all.end(), b_.begin(), b_.end());
    std::vector<std::byte> bytes(all.size() * sizeof(float));
    follow::WriteTyped(compress::ElementType::kFloat32, all, absl::MakeSpan(bytes));
    return bytes;
  }
  std::unique_ptr<follow::Follower> Follow() const {
    auto follower = std::make_unique<follow::Follower>(
        follow::Follower::Options{.address = servers_[0]->address(),
                                  .type = compress::ElementType::kFloat32},
        &clock_, Logger("follower"));
    EXPECT_TRUE(follower->Connect().ok());
    return follower;
  }

  const SteadyClock clock_{};
  const job::JobSpec job_ = FollowedJob();
  std::vector<std::unique_ptr<server::Server>> servers_;
  uint64_t step_ = 0;
  std::vector<float> w_ = std::vector<float>(4500, 7);
  std::vector<float> b_ = std::vector<float>(5, -1);
  std::map<uint64_t, std::vector<std::byte>> published_;  // By step.
};

TEST_F(WeightsUploadTest, FollowersGetTheParametersOfRankZero) {
  const worker::JoinedSession session(Options(), FollowedTensors(), std::string(32, 'a'));
  ASSERT_TRUE(session.ok()) << session.status();
  Step(session);
  EXPECT_FALSE(session->WantsWeights(kEvery, false));  // There is no follower.
  std::atomic<int> received = 0;
  std::thread trainer([&] {
    AwaitThat([&] { return session->WantsWeights(kEvery, false); });
    EXPECT_FALSE(session->WantsWeights(kEvery + 1, false));
    EXPECT_TRUE(session->WantsWeights(kEvery + 1, true));
    AwaitThat([&] {
      Step(session);
      return received >= 3;
    });
    // The last version comes even if its step is no multiple of `every`.
    if (step_ % kEvery != 0) Step(session);
    Step(session, /*is_last=*/true);
    EXPECT_TRUE(session->Leave().ok());
    // Outcome lets a server end its followers' calls.
    for (const auto& server : servers_) {
      AwaitThat([&] { return server->Outcome().has_value(); });
    }
  });
  std::unique_ptr<follow::Follower> follower = Follow();
  std::map<uint64_t, std::vector<std::byte>> versions;
  uint64_t anchors = 0;
  for (;;) {
    const absl::StatusOr<std::optional<follow::Follower::Version>> next = follower->Next();
    EXPECT_TRUE(next.ok()) << next.status();
    if (!next.ok() || !next->has_value()) break;
    versions[(*next)->version.step].assign((*next)->weights.begin(), (*next)->weights.end());
    anchors += (*next)->applied.anchors;
    ++received;
  }
  trainer.join();
  ASSERT_GE(versions.size(), 3U);
  for (const auto& [step, weights] : versions) EXPECT_EQ(weights, published_[step]) << step;
  EXPECT_EQ(versions.rbegin()->first, step_);
  EXPECT_EQ(step_ % kEvery, 1U);
  EXPECT_EQ(anchors, 2U);  // One for each shard.
}

// Calls Upload as a worker could, and returns the reason for the refusal.
grpc::Status Upload(const std::string& address, const v1::UploadRequest& first) {
  const auto stub = v1::WeightsUpload::NewStub(net::Transport::Plain()->Dial(address));
  grpc::ClientContext context;
  const auto stream = stub->Upload(&context);
  stream->Write(first);
  stream->WritesDone();
  v1::UploadReply reply;
  EXPECT_FALSE(stream->Read(&reply));
  return stream->Finish();
}

TEST_F(WeightsUploadTest, AShardTakesWeightsOnlyFromTheHolderOfRankZero) {
  const worker::JoinedSession session(Options(), FollowedTensors(), std::string(32, 'a'));
  ASSERT_TRUE(session.ok()) << session.status();
  v1::UploadRequest first;
  first.set_type(protocol::TypeToProto(compress::ElementType::kFloat32));
  protocol::SenderToProto({.job_uid = 77, .rank = 1, .incarnation = 1}, first.mutable_sender());
  grpc::Status refused = Upload(servers_[0]->address(), first);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("rank 1 may not upload weights"));
  protocol::SenderToProto({.job_uid = 77, .rank = 0, .incarnation = 12345}, first.mutable_sender());
  refused = Upload(servers_[0]->address(), first);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << refused.error_message();
  refused = Upload(servers_[0]->address(), v1::UploadRequest());
  EXPECT_FALSE(refused.ok());
  EXPECT_TRUE(session->Leave().ok());
}

}  // namespace
}  // namespace sluice
