// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/exchange_messages.h"

#include <gmock/gmock.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/protocol/wire/unset_fields.h"
#include "tests/protocol/wire/wire_samples.h"

namespace sluice::protocol {
namespace {

using ::testing::UnorderedElementsAre;

// Returns the message as the receiver reads it, or nullopt if it cannot be read.
template <typename Message>
std::optional<Message> Read(grpc::ByteBuffer bytes) {
  Message message;
  if (!grpc::GenericDeserialize<grpc::ProtoBufferReader, Message>(&bytes, &message).ok()) {
    return std::nullopt;
  }
  return message;
}

v1::ExchangeReply ReplyOf(const ExchangeReply& answer) {
  return Read<v1::ExchangeReply>(
             ExchangeReplyToBytes(std::make_shared<const ExchangeReply>(answer), 91, 92))
      .value();
}

ExchangeRequest SampleExchange() {
  ExchangeRequest exchange;
  exchange.sender = SampleSender();
  exchange.step = 1;
  exchange.bundle = 2;
  exchange.skip = true;
  exchange.frames = {"frame", "another"};
  exchange.plan_id = 3;
  exchange.base_version = 4;
  exchange.acked_step = 5;
  exchange.checkpoint_step = 6;
  exchange.rate = 0.5F;
  exchange.weight = 7;
  exchange.work = {.samples = 640, .steps = 20, .slack_us = 30};
  exchange.plan = std::make_shared<const CompressionPlan>(SamplePlan());
  exchange.answered = true;
  exchange.announced = std::make_shared<const CompressionPlan>(SamplePlan());
  return exchange;
}

void ExpectEqual(const ExchangeRequest& exchange, const ExchangeRequest& wanted) {
  EXPECT_EQ(exchange.sender, wanted.sender);
  EXPECT_EQ(exchange.step, wanted.step);
  EXPECT_EQ(exchange.bundle, wanted.bundle);
  EXPECT_EQ(exchange.skip, wanted.skip);
  EXPECT_EQ(exchange.keys_only, wanted.keys_only);
  EXPECT_EQ(exchange.frames, wanted.frames);
  EXPECT_EQ(exchange.checksums, wanted.checksums);
  EXPECT_EQ(exchange.plan_id, wanted.plan_id);
  EXPECT_EQ(exchange.base_version, wanted.base_version);
  EXPECT_EQ(exchange.acked_step, wanted.acked_step);
  EXPECT_EQ(exchange.checkpoint_step, wanted.checkpoint_step);
  EXPECT_EQ(exchange.rate, wanted.rate);
  EXPECT_EQ(exchange.weight, wanted.weight);
  EXPECT_EQ(exchange.work, wanted.work);
  ASSERT_NE(exchange.plan, nullptr);
  EXPECT_EQ(*exchange.plan, *wanted.plan);
  EXPECT_EQ(exchange.answered, wanted.answered);
  ASSERT_NE(exchange.announced, nullptr);
  EXPECT_EQ(*exchange.announced, *wanted.announced);
}

TEST(ExchangeMessagesTest, RequestsTravel) {
  ExchangeRequest with_keys = SampleExchange();
  with_keys.frames.clear();
  with_keys.keys_only = true;
  with_keys.checksums = {81, 82};
  const LinkReport link{.step = 1,
                        .round_trip_s = 0.25,
                        .down = {{.bytes = 100, .seconds = 0.5}},
                        .compute_s = 1,
                        .encode_s = 2,
                        .apply_s = 3,
                        .exposed_s = 4,
                        .tested = 0.75};
  std::vector<v1::ExchangeRequest> messages;
  for (const ExchangeRequest& wanted : {SampleExchange(), with_keys}) {
    messages.push_back(Read<v1::ExchangeRequest>(
                           ExchangeRequestToBytes(std::make_shared<const ExchangeRequest>(wanted),
                                                  &wanted.sender, 93, &link))
                           .value());
    EXPECT_EQ(messages.back().ready_ns(), 93u);
    v1::ExchangeRequest taken = messages.back();
    const absl::StatusOr<ExchangeRequest> back = ExchangeRequestFromProto({}, &taken);
    ASSERT_TRUE(back.ok()) << back.status();
    ExpectEqual(*back, wanted);
  }
  EXPECT_THAT(UnsetFields({&messages[0], &messages[1]}),
              UnorderedElementsAre("presented", "probe", "plan.rate", "plan.worker_budget_bytes",
                                   "announced.rate", "announced.worker_budget_bytes"))
      << "a probe is a separate request; this version never sets the other fields";
}

TEST(ExchangeMessagesTest, AnswersTravel) {
  ExchangeReply answer;
  answer.outcome = Outcome::kResult;
  answer.step = 1;
  answer.bundle = 2;
  answer.record = {
      .term = 3,
      .step = 4,
      .bundle = 5,
      .generation = 6,
      .included = {{.rank = 7, .origin_step = 8, .checksum = 9, .skipped = true, .weight = 10}},
      .n = 11,
      .plan_id = 12,
      .rate = 0.5F,
      .momentum = 0.75F,
      .result_checksum = 13};
  answer.results = {"frame", "another"};
  answer.base_version = 14;
  answer.version = 15;
  answer.need_from = 16;
  answer.retry_after_ms = 17;
  answer.message = "for a person";
  answer.checkpoint_step = 18;
  answer.term = 19;
  answer.exact = true;
  answer.staleness = 20;
  answer.open_step = 21;
  answer.plan = std::make_shared<const CompressionPlan>(SamplePlan());
  answer.members = {22, 23};
  v1::ExchangeReply message = ReplyOf(answer);
  EXPECT_THAT(UnsetFields(message),
              UnorderedElementsAre("probe_held_ns", "plan.rate", "plan.worker_budget_bytes"));
  EXPECT_EQ(message.server_incarnation(), 91u);
  EXPECT_EQ(message.ready_ns(), 92u);
  const absl::StatusOr<ExchangeReply> back = ExchangeReplyFromProto(&message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->outcome, answer.outcome);
  EXPECT_EQ(back->step, answer.step);
  EXPECT_EQ(back->bundle, answer.bundle);
  EXPECT_EQ(back->record, answer.record);
  EXPECT_EQ(back->results, answer.results);
  EXPECT_EQ(back->base_version, answer.base_version);
  EXPECT_EQ(back->version, answer.version);
  EXPECT_EQ(back->need_from, answer.need_from);
  EXPECT_EQ(back->retry_after_ms, answer.retry_after_ms);
  EXPECT_EQ(back->message, answer.message);
  EXPECT_EQ(back->checkpoint_step, answer.checkpoint_step);
  EXPECT_EQ(back->term, answer.term);
  EXPECT_EQ(back->exact, answer.exact);
  EXPECT_EQ(back->staleness, answer.staleness);
  EXPECT_EQ(back->open_step, answer.open_step);
  ASSERT_NE(back->plan, nullptr);
  EXPECT_EQ(*back->plan, *answer.plan);
  EXPECT_EQ(back->members, answer.members);
}

TEST(ExchangeMessagesTest, ExchangesCarryCheckpointsAndTerms) {
  v1::ExchangeRequest request;
  request.set_step(5);
  request.set_checkpoint_step(8);
  const absl::StatusOr<ExchangeRequest> exchange = ExchangeRequestFromProto({}, &request);
  ASSERT_TRUE(exchange.ok()) << exchange.status();
  EXPECT_EQ(exchange->checkpoint_step, 8);

  ExchangeReply answer;
  answer.outcome = Outcome::kFenced;
  answer.checkpoint_step = 12;
  answer.term = 3;
  const v1::ExchangeReply reply = ReplyOf(answer);
  EXPECT_EQ(reply.checkpoint_step(), 12);
  EXPECT_EQ(reply.term(), 3);
}

TEST(ExchangeMessagesTest, TextsFromElsewhereAreUtf8InMessages) {
  ExchangeReply answer;
  answer.message = "\xff caf\xc3";
  EXPECT_TRUE(Read<v1::ExchangeReply>(
                  ExchangeReplyToBytes(std::make_shared<const ExchangeReply>(answer), 1, 0))
                  .has_value());
}

}  // namespace
}  // namespace sluice::protocol
