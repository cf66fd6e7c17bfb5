// SPDX-License-Identifier: Apache-2.0
// Tests CoordinatorClient with a slow coordinator.
#include "worker/rpc/coordinator_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "tests/worker/rpc/fake_server.h"

namespace sluice::worker {
namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(60);
constexpr absl::Duration kAnswerGrace = absl::Seconds(40);

class CoordinatorClientTest : public testing::Test {
 protected:
  absl::StatusOr<v1::JoinReply> Join(const FakeServer& server, const Clock& clock) const {
    CoordinatorClient client({.address = server.address(),
                              .rank = 1,
                              .backoff_min = absl::Milliseconds(1),
                              .backoff_max = absl::Milliseconds(10),
                              .answer_grace = kAnswerGrace,
                              .clock = &clock});
    v1::JoinRequest request;
    request.set_rank(1);
    request.set_nonce(8);
    for (int i = 0; i < tensors_; ++i) {
      request.mutable_table()->add_tensors()->set_name(std::string(100, 't'));
    }
    return client.Join(request, absl::Seconds(100), kAnswerTimeout);
  }
  absl::StatusOr<v1::JoinReply> Join(const FakeServer& server) const {
    return Join(server, SteadyClock());
  }

  int tensors_ = 0;
  SimulatedClock clock_;
};

TEST_F(CoordinatorClientTest, AJoinIsAskedAgainAsLongAsTheCoordinatorLives) {
  FakeServer server(
      {.joins_unanswered = 3, .clock = &clock_, .join_deadline = kAnswerTimeout + kAnswerGrace});
  const absl::StatusOr<v1::JoinReply> reply = Join(server, clock_);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(server.joins().size(), 4u);
  for (const v1::JoinRequest& join : server.joins()) EXPECT_EQ(join.nonce(), 8u);
}

// A server closes a connection that sends a lot of data before its first authorized call. A small
// call must therefore precede each attempt at a large Join.
TEST_F(CoordinatorClientTest, ASmallCallGoesBeforeEachTryOfALargeJoin) {
  FakeServer server({.joins_unavailable = 2});
  tensors_ = 2000;
  const absl::StatusOr<v1::JoinReply> reply = Join(server);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(server.joins().size(), 3u);
  EXPECT_GE(server.status_calls(), 3);
}

TEST_F(CoordinatorClientTest, ASmallJoinComesAtOnce) {
  FakeServer server({});
  tensors_ = 20;
  ASSERT_TRUE(Join(server).ok());
  EXPECT_EQ(server.status_calls(), 0);
}

TEST_F(CoordinatorClientTest, AJoinEndsWhereTheCoordinatorSaysNothing) {
  FakeServer server({.joins_unanswered = 3,
                     .clock = &clock_,
                     .join_deadline = kAnswerTimeout + kAnswerGrace,
                     .status = {grpc::StatusCode::DEADLINE_EXCEEDED, "nothing"}});
  EXPECT_EQ(Join(server, clock_).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(server.joins().size(), 1u);
}

TEST_F(CoordinatorClientTest, WhoNeverCameIsSaidOnce) {
  FakeServer server(
      {.join = {grpc::StatusCode::DEADLINE_EXCEEDED, "waited 60s: rank 0 did not join"}});
  EXPECT_THAT(std::string(Join(server).status().message()),
              testing::HasSubstr("rank 0 did not join"));
  EXPECT_EQ(server.joins().size(), 1u);
}

}  // namespace
}  // namespace sluice::worker
