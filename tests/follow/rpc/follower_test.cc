// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "follow/rpc/weights_client.h"
#include "follow/rpc/weights_relay.h"
#include "protocol/wire/weights_messages.h"
#include "tests/follow/rpc/served_weights.h"

namespace sluice::follow {
namespace {

using compress::ElementType;
using ::testing::HasSubstr;

constexpr ElementType kType = ElementType::kBfloat16;

// A job of two shards, whose hubs are in this process.
class FollowerTest : public testing::Test {
 protected:
  FollowerTest() {
    for (uint32_t i = 0; i < 2; ++i) {
      hubs_.push_back(
          std::make_unique<WeightsHub>(WeightsHub::Options{.types = {kType}}, Logger("hub")));
      hubs_[i]->Begin(7, {{i, LayoutOfShard(parts_, i)}});
      servers_.push_back(Serve(i, 0));
      ports_.push_back(servers_[i]->port());
    }
  }

  std::unique_ptr<HubServer> Serve(size_t shard, int port) {
    return std::make_unique<HubServer>(
        hubs_[shard].get(),
        [this] {
          protocol::WeightsDescription job = SampleJob(job_uid_, 2);
          job.addresses[1] = "127.0.0.1:" + std::to_string(ports_[1]);
          return job;
        },
        &clock_, port);
  }
  void Publish(uint64_t step, uint32_t term = 1) {
    for (uint32_t i = 0; i < 2; ++i) PublishShard(i, step, term);
  }
  void PublishShard(uint32_t shard, uint64_t step, uint32_t term = 1) {
    hubs_[shard]->Offer(shard, {.term = term, .step = step}, kType,
                        TypedShardAt(parts_, shard, step));
  }
  void Finish(const absl::Status& end) {
    for (const auto& hub : hubs_) hub->Finish(end);
  }
  Follower::Options OptionsFor(const std::string& address) const {
    return {.address = address, .type = kType, .patience = absl::Seconds(30)};
  }
  // Expects the weights of `step` as the next version. Returns the number of anchors it took.
  uint64_t ExpectNext(Follower* follower, uint64_t step) {
    const absl::StatusOr<std::optional<Follower::Version>> version = follower->Next();
    EXPECT_TRUE(version.ok()) << version.status();
    if (!version.ok() || !version->has_value()) return 0;
    EXPECT_EQ((*version)->version.step, step);
    EXPECT_EQ(std::vector<std::byte>((*version)->weights.begin(), (*version)->weights.end()),
              TypedModelAt(step));
    return (*version)->applied.anchors;
  }

  const ModelParts parts_ = *protocol::PartsOfWeights(SampleJob(7, 2));
  const SteadyClock clock_{};
  uint64_t job_uid_ = 7;
  std::vector<std::unique_ptr<WeightsHub>> hubs_;
  std::vector<int> ports_;
  std::vector<std::unique_ptr<HubServer>> servers_;
};

TEST_F(FollowerTest, ReadsVersionsUntilTheJobEnds) {
  Follower follower(OptionsFor(servers_[0]->address()), &clock_, Logger("follower"));
  ASSERT_TRUE(follower.Connect().ok());
  EXPECT_EQ(follower.job().job, "sample");
  Publish(1);
  EXPECT_EQ(ExpectNext(&follower, 1), 2U);
  for (uint64_t step = 2; step <= 20; ++step) {
    Publish(step);
    EXPECT_EQ(ExpectNext(&follower, step), 0U);
  }
  Finish(absl::OkStatus());
  const absl::StatusOr<std::optional<Follower::Version>> end = follower.Next();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_FALSE(end->has_value());
}

TEST_F(FollowerTest, GoesOnWithAPatchAfterAServerWasAway) {
  Follower follower(OptionsFor(servers_[0]->address()), &clock_, Logger("follower"));
  ASSERT_TRUE(follower.Connect().ok());
  Publish(1);
  EXPECT_EQ(ExpectNext(&follower, 1), 2U);
  servers_[1].reset();
  Publish(2);
  servers_[1] = Serve(1, ports_[1]);
  EXPECT_EQ(ExpectNext(&follower, 2), 0U);
}

TEST_F(FollowerTest, ARollbackLeadsToALowerStep) {
  Follower follower(OptionsFor(servers_[0]->address()), &clock_, Logger("follower"));
  ASSERT_TRUE(follower.Connect().ok());
  Publish(9);
  EXPECT_EQ(ExpectNext(&follower, 9), 2U);
  Publish(5, 2);
  EXPECT_EQ(ExpectNext(&follower, 5), 2U);
}

TEST_F(FollowerTest, ANewRunReplacesTheModel) {
  Follower follower(OptionsFor(servers_[0]->address()), &clock_, Logger("follower"));
  ASSERT_TRUE(follower.Connect().ok());
  Publish(3);
  EXPECT_EQ(ExpectNext(&follower, 3), 2U);
  job_uid_ = 8;
  for (uint32_t i = 0; i < 2; ++i) hubs_[i]->Begin(8, {{i, LayoutOfShard(parts_, i)}});
  Publish(1);
  EXPECT_EQ(ExpectNext(&follower, 1), 2U);
  EXPECT_EQ(follower.job().job_uid, 8U);
}

TEST_F(FollowerTest, SaysWhyTheJobFailed) {
  Follower follower(OptionsFor(servers_[0]->address()), &clock_, Logger("follower"));
  ASSERT_TRUE(follower.Connect().ok());
  Publish(1);
  EXPECT_EQ(ExpectNext(&follower, 1), 2U);
  Finish(absl::AbortedError("worker 3 was lost"));
  const absl::Status failed = follower.Next().status();
  EXPECT_TRUE(absl::IsAborted(failed)) << failed;
  EXPECT_THAT(failed.message(), HasSubstr("worker 3 was lost"));
}

TEST_F(FollowerTest, CancelEndsAWaitingNext) {
  Follower follower(OptionsFor(servers_[0]->address()), &clock_, Logger("follower"));
  ASSERT_TRUE(follower.Connect().ok());
  std::thread canceller([&] { follower.Cancel(); });
  const absl::Status cancelled = follower.Next().status();
  canceller.join();
  EXPECT_TRUE(absl::IsCancelled(cancelled)) << cancelled;
}

TEST_F(FollowerTest, GivesUpAfterItsPatience) {
  Follower::Options options = OptionsFor("127.0.0.1:1");  // Nothing listens there.
  options.patience = absl::Milliseconds(300);
  Follower follower(options, &clock_, Logger("follower"));
  EXPECT_TRUE(absl::IsUnavailable(follower.Connect()));
}

TEST_F(FollowerTest, RefusesATypeThatTheJobDoesNotOffer) {
  Follower::Options options = OptionsFor(servers_[0]->address());
  options.type = ElementType::kFloat32;
  Follower follower(options, &clock_, Logger("follower"));
  const absl::Status refused = follower.Connect();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("does not offer fp32, but bf16"));
}

// The server may learn of the end of a call while a write succeeds, and have nothing more to send.
TEST_F(FollowerTest, ACallThatEndsDuringAWriteIsForgotten) {
  Publish(1);
  for (int i = 0; i < 200; ++i) {
    WeightsClient client(net::Transport::Plain(), servers_[0]->address(), &clock_);
    const absl::Status left = client.Receive(
        {.job_uid = job_uid_, .shard = 0, .type = kType, .update_bytes_max = 1 << 20},
        [](uint32_t, const std::vector<std::byte>&) { return false; });
    ASSERT_TRUE(absl::IsCancelled(left)) << left;
    // Without the server's end of the call, this lasts until the test's time is over.
    while (hubs_[0]->figures().followers > 0) std::this_thread::yield();
  }
}

TEST_F(FollowerTest, ManyFollowersOfARelayCostTheJobOneCopy) {
  absl::StatusOr<std::unique_ptr<WeightsRelay>> relay = WeightsRelay::Start(
      {.address = servers_[0]->address(), .patience = absl::Seconds(30)}, &clock_, Logger("relay"));
  ASSERT_TRUE(relay.ok()) << relay.status();
  const HubServer server((*relay)->hub(), [&] { return (*relay)->Describe(); }, &clock_);
  std::vector<std::unique_ptr<Follower>> followers;
  for (int i = 0; i < 5; ++i) {
    followers.push_back(
        std::make_unique<Follower>(OptionsFor(server.address()), &clock_, Logger("follower")));
    ASSERT_TRUE(followers.back()->Connect().ok());
  }
  std::vector<std::thread> threads;
  for (const auto& follower : followers) {
    threads.emplace_back([&, reader = follower.get()] {
      // A follower that is late skips versions, but has the last one.
      std::optional<uint64_t> last;
      for (;;) {
        const absl::StatusOr<std::optional<Follower::Version>> version = reader->Next();
        ASSERT_TRUE(version.ok()) << version.status();
        if (!version->has_value()) break;
        last = (*version)->version.step;
        EXPECT_EQ(std::vector<std::byte>((*version)->weights.begin(), (*version)->weights.end()),
                  TypedModelAt(*last));
      }
      EXPECT_EQ(last, 10U);
    });
  }
  for (uint64_t step = 1; step <= 10; ++step) Publish(step);
  // The job must not end before the relay has asked for the type.
  while (hubs_[0]->figures().followers + hubs_[1]->figures().followers < 2)
    std::this_thread::yield();
  Finish(absl::OkStatus());
  for (std::optional<absl::Status> end; !end.has_value(); std::this_thread::yield()) {
    end = (*relay)->Outcome();
    EXPECT_TRUE(end.value_or(absl::OkStatus()).ok());
  }
  for (std::thread& thread : threads) thread.join();
  // Each follower got at least an anchor.
  EXPECT_GE((*relay)->hub()->figures().sent_bytes, 5 * TypedModelAt(0).size());
  EXPECT_LT(hubs_[0]->figures().sent_bytes + hubs_[1]->figures().sent_bytes,
            2 * TypedModelAt(0).size());
  EXPECT_EQ(hubs_[0]->figures().anchors, 1U);
}

// Sends what a test says, and not what a hub would send.
class BadService final : public v1::Weights::Service {
 public:
  explicit BadService(std::vector<v1::FollowReply> replies) : replies_(std::move(replies)) {}
  grpc::Status Describe(grpc::ServerContext* /*context*/,
                        const v1::DescribeWeightsRequest* /*request*/,
                        v1::DescribeWeightsReply* reply) override {
    protocol::DescriptionToProto(SampleJob(), reply);
    return grpc::Status::OK;
  }
  grpc::Status Follow(grpc::ServerContext* /*context*/, const v1::FollowRequest* /*request*/,
                      grpc::ServerWriter<v1::FollowReply>* writer) override {
    for (const v1::FollowReply& reply : replies_) writer->Write(reply);
    return grpc::Status::OK;
  }

 private:
  const std::vector<v1::FollowReply> replies_;
};

absl::Status FollowBadServer(std::vector<v1::FollowReply> replies) {
  BadService service(std::move(replies));
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const SteadyClock clock;
  Follower follower({.address = "127.0.0.1:" + std::to_string(port)}, &clock, Logger("follower"));
  if (absl::Status connected = follower.Connect(); !connected.ok()) return connected;
  return follower.Next().status();
}

v1::FollowReply Reply(uint64_t update_bytes, const std::string& part) {
  v1::FollowReply reply;
  reply.set_update_bytes(update_bytes);
  reply.set_part(part);
  return reply;
}

TEST(BadServerTest, PartsOfWrongSizesAreRefused) {
  for (const auto& replies : std::vector<std::vector<v1::FollowReply>>{
           {Reply(0, "x")},
           {Reply(uint64_t{1} << 60, "x")},
           {Reply(4, "")},
           {Reply(4, "12345")},
           {Reply(4, "12"), Reply(0, "345")},
       }) {
    const absl::Status refused = FollowBadServer(replies);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  }
}

}  // namespace
}  // namespace sluice::follow
