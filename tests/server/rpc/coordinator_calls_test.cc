// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/coordinator_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct FakeWaiter final : JoinWaiter {
  void Answer(const absl::StatusOr<protocol::JoinGrant>& grant) override {
    answers.push_back(grant.status());
    terms.push_back(grant.ok() ? grant->term : 0);
  }

  std::vector<absl::Status> answers;
  std::vector<uint32_t> terms;
};

struct FakeControlStream final : CommandOutput {
  void Send(std::shared_ptr<const v1::ShardCommand> message, uint64_t size) override {
    EXPECT_EQ(size, message->ByteSizeLong());
    sent.push_back(message->sequence());
  }
  void Close(const grpc::Status& status) override { closed.push_back(status); }

  std::vector<uint64_t> sent;
  std::vector<grpc::Status> closed;
};

class CoordinatorCallsTest : public ::testing::Test {
 protected:
  CheckpointToken AddRequest() {
    return calls_.AddRequest(
        [this](const absl::StatusOr<uint64_t>& step) { steps_.push_back(step); });
  }
  static AnswerJoin Grant(JoinToken token, uint32_t term) {
    protocol::JoinGrant grant;
    grant.term = term;
    return {.token = token, .grant = grant};
  }

  const absl::Time now_ = absl::FromUnixSeconds(100);
  std::vector<std::string> lines_;
  CoordinatorCalls calls_{
      Logger("test", {.sink = [this](LogLevel, absl::string_view, absl::string_view text) {
               lines_.emplace_back(text);
             }})};
  std::vector<absl::StatusOr<uint64_t>> steps_;
};

TEST_F(CoordinatorCallsTest, AJoinIsAnsweredOnce) {
  FakeWaiter first, second;
  const JoinToken one = calls_.AddJoin(&first);
  const JoinToken other = calls_.AddJoin(&second);
  calls_.Answer(Grant(other, 3), now_);
  EXPECT_THAT(first.answers, IsEmpty());
  EXPECT_THAT(second.terms, ElementsAre(3));
  calls_.Answer(Grant(other, 4), now_);
  EXPECT_EQ(second.answers.size(), 1u);
  EXPECT_FALSE(calls_.ForgetJoin(other)) << "the call was already answered";
  EXPECT_TRUE(calls_.ForgetJoin(one));
  calls_.Answer(Grant(one, 3), now_);
  EXPECT_THAT(first.answers, IsEmpty()) << "the caller is gone";
}

TEST_F(CoordinatorCallsTest, ARequestForACheckpointIsAnsweredOnce) {
  const CheckpointToken one = AddRequest();
  const CheckpointToken other = AddRequest();
  calls_.Answer({.token = other, .step = 40});
  ASSERT_EQ(steps_.size(), 1u);
  EXPECT_EQ(*steps_[0], 40u);
  calls_.Answer({.token = other, .step = 50});
  EXPECT_FALSE(calls_.ForgetRequest(other)) << "the answer was already given";
  EXPECT_TRUE(calls_.ForgetRequest(one));
  calls_.Answer({.token = one, .step = 50});
  EXPECT_EQ(steps_.size(), 1u);
}

TEST_F(CoordinatorCallsTest, ACommandGoesToItsStreamOnly) {
  FakeControlStream first, second;
  const ControlStreamId one = calls_.AddStream(&first);
  const ControlStreamId other = calls_.AddStream(&second);
  calls_.Send({.stream = other, .sequence = 7, .command = protocol::SuspendShard{}});
  EXPECT_THAT(first.sent, IsEmpty());
  EXPECT_THAT(second.sent, ElementsAre(7));
  calls_.ForgetStream(other);
  calls_.Send({.stream = other, .sequence = 8, .command = protocol::SuspendShard{}});
  EXPECT_THAT(second.sent, ElementsAre(7)) << "a closed stream gets nothing";
  const ControlStreamId again = calls_.AddStream(&second);
  EXPECT_NE(again, other) << "late commands to the closed stream must not arrive";
  EXPECT_NE(again, one);
}

TEST_F(CoordinatorCallsTest, ARefusedShardLearnsTheReason) {
  FakeControlStream first, second;
  calls_.AddStream(&first);
  const ControlStreamId other = calls_.AddStream(&second);
  calls_.Refuse({.stream = other, .why = absl::AlreadyExistsError("two of them")}, now_);
  EXPECT_THAT(first.closed, IsEmpty());
  ASSERT_EQ(second.closed.size(), 1u);
  EXPECT_EQ(second.closed[0].error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("two of them")));
}

TEST_F(CoordinatorCallsTest, RefusalsOfOneKindAreLoggedOncePerSecond) {
  const auto refuse_worker = [&](absl::string_view why, absl::Time now) {
    FakeWaiter waiter;
    const JoinToken token = calls_.AddJoin(&waiter);
    calls_.Answer({.token = token, .grant = absl::InvalidArgumentError(why)}, now);
    EXPECT_EQ(waiter.answers.size(), 1u);
  };
  refuse_worker("first", now_);
  refuse_worker("second", now_);
  refuse_worker("third", now_);
  calls_.Refuse({.stream = 1, .why = absl::InternalError("a shard")}, now_);
  refuse_worker("fourth", now_ + absl::Seconds(1));
  EXPECT_THAT(lines_, ElementsAre("a worker was refused: first", "a shard was refused: a shard",
                                  "a worker was refused: fourth (and 2 more since the last line of "
                                  "this kind)"));
}

TEST_F(CoordinatorCallsTest, OnlyAnAnswerThatForbidsAnotherTryIsLoggedAsARefusal) {
  FakeWaiter waiter;
  const auto answer = [&](const absl::Status& status) {
    calls_.Answer({.token = calls_.AddJoin(&waiter), .grant = status}, now_);
  };
  answer(absl::AbortedError("a newer call of the same worker waits"));
  answer(absl::AlreadyExistsError("the rank is taken"));
  calls_.Answer(Grant(calls_.AddJoin(&waiter), 1), now_);
  EXPECT_THAT(lines_, IsEmpty());
  answer(absl::FailedPreconditionError("the job has failed"));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("the job has failed")));
  EXPECT_EQ(waiter.answers.size(), 4u);
}

TEST_F(CoordinatorCallsTest, FailAllAnswersTheCallsAndKeepsTheStreams) {
  FakeWaiter first, second;
  FakeControlStream output;
  const JoinToken one = calls_.AddJoin(&first);
  calls_.AddJoin(&second);
  const CheckpointToken request = AddRequest();
  const ControlStreamId stream = calls_.AddStream(&output);
  calls_.FailAll("the disk is gone");
  ASSERT_EQ(first.answers.size(), 1u);
  EXPECT_EQ(first.answers[0], absl::FailedPreconditionError("the disk is gone"));
  EXPECT_EQ(second.answers, first.answers);
  ASSERT_EQ(steps_.size(), 1u);
  EXPECT_EQ(steps_[0].status(), absl::UnavailableError("the disk is gone"));
  EXPECT_FALSE(calls_.ForgetJoin(one));
  EXPECT_FALSE(calls_.ForgetRequest(request));
  calls_.Send({.stream = stream, .sequence = 1, .command = protocol::EndShard{}});
  EXPECT_THAT(output.sent, ElementsAre(1)) << "the shard must still learn of the end";
}

}  // namespace
}  // namespace sluice::server
