// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/answer_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct FakeOutput final : AnswerOutput {
  void Send(std::shared_ptr<const grpc::ByteBuffer> message, uint64_t size) override {
    EXPECT_EQ(size, message->Length());
    sent.push_back(std::move(message));
  }
  void LimitBytes(uint64_t bytes) override { limits.push_back(bytes); }
  void Close(const grpc::Status& status) override { closed.push_back(status.error_message()); }

  std::vector<std::shared_ptr<const grpc::ByteBuffer>> sent;
  std::vector<uint64_t> limits;
  std::vector<std::string> closed;
};

std::shared_ptr<const protocol::ExchangeReply> Answer(uint64_t step) {
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->outcome = protocol::Outcome::kBusy;
  answer->step = step;
  return answer;
}

class AnswerStreamsTest : public ::testing::Test {
 protected:
  void Send(StreamId stream, const std::shared_ptr<const protocol::ExchangeReply>& answer) {
    streams_.Send(stream, answer, /*incarnation=*/5, absl::FromUnixSeconds(100));
  }

  AnswerStreams streams_;
  FakeOutput first_, second_;
};

TEST_F(AnswerStreamsTest, AnAnswerGoesToItsStreamOnly) {
  const StreamId one = streams_.Open(&first_);
  const StreamId other = streams_.Open(&second_);
  EXPECT_NE(one, other);
  Send(other, Answer(1));
  EXPECT_THAT(first_.sent, IsEmpty());
  EXPECT_EQ(second_.sent.size(), 1u);
  streams_.Closed(other);
  Send(other, Answer(2));
  EXPECT_EQ(second_.sent.size(), 1u) << "a closed stream gets nothing";
  EXPECT_NE(streams_.Open(&second_), other) << "late answers to the closed stream must not arrive";
}

TEST_F(AnswerStreamsTest, AnAnswerToSeveralStreamsIsSerializedOnce) {
  const StreamId one = streams_.Open(&first_);
  const StreamId other = streams_.Open(&second_);
  const auto answer = Answer(1);
  Send(one, answer);
  Send(other, answer);
  ASSERT_EQ(first_.sent.size(), 1u);
  ASSERT_EQ(second_.sent.size(), 1u);
  EXPECT_EQ(first_.sent[0], second_.sent[0]) << "both streams share the bytes";
  Send(one, Answer(1));
  EXPECT_NE(first_.sent[1], first_.sent[0]) << "another answer has bytes of its own";
}

TEST_F(AnswerStreamsTest, ForgetAnswerFreesTheBytes) {
  const StreamId one = streams_.Open(&first_);
  Send(one, Answer(1));
  const std::weak_ptr<const grpc::ByteBuffer> bytes = first_.sent[0];
  first_.sent.clear();
  EXPECT_FALSE(bytes.expired());
  streams_.ForgetAnswer();
  EXPECT_TRUE(bytes.expired());
}

TEST_F(AnswerStreamsTest, TheLimitHoldsForOpenAndLaterStreams) {
  streams_.Open(&first_);
  streams_.LimitBytes(5 << 20);
  streams_.Open(&second_);
  EXPECT_THAT(first_.limits, ElementsAre(AnswerStreams::kBytesMin, 5 << 20));
  EXPECT_THAT(second_.limits, ElementsAre(5 << 20));
}

TEST_F(AnswerStreamsTest, TheRankIsKnownUntilItIsForgotten) {
  const StreamId one = streams_.Open(&first_);
  EXPECT_EQ(streams_.RankOf(one), std::nullopt);
  streams_.SetRank(one, 3);
  streams_.Closed(one);
  EXPECT_EQ(streams_.RankOf(one), 3u) << "requests of the stream may still wait for the core";
  streams_.Forget(one);
  EXPECT_EQ(streams_.RankOf(one), std::nullopt);
}

TEST_F(AnswerStreamsTest, CloseEndsOneStreamAndCloseAllEndsAll) {
  const StreamId one = streams_.Open(&first_);
  streams_.Open(&second_);
  streams_.Close(one, {grpc::StatusCode::UNAVAILABLE, "one"});
  EXPECT_THAT(first_.closed, ElementsAre("one"));
  EXPECT_THAT(second_.closed, IsEmpty());
  streams_.CloseAll({grpc::StatusCode::UNAVAILABLE, "all"});
  EXPECT_THAT(first_.closed, ElementsAre("one", "all"));
  EXPECT_THAT(second_.closed, ElementsAre("all"));
  streams_.Closed(one);
  streams_.Close(one, {grpc::StatusCode::UNAVAILABLE, "late"});
  EXPECT_EQ(first_.closed.size(), 2u);
}

}  // namespace
}  // namespace sluice::server
