// SPDX-License-Identifier: Apache-2.0
#include "protocol/wire/exchange_messages.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/link_message.h"
#include "protocol/wire/message_slices.h"
#include "protocol/wire/plan_message.h"

namespace sluice::protocol {
namespace {

ClosingRecord FromMessage(const v1::ClosingRecord& message) {
  ClosingRecord record;
  record.term = message.term();
  record.step = message.step();
  record.bundle = message.bundle();
  record.generation = message.generation();
  for (const v1::Included& included : message.included()) {
    record.included.push_back({.rank = included.rank(),
                               .origin_step = included.origin_step(),
                               .checksum = included.checksum(),
                               .skipped = included.skipped(),
                               .weight = std::max(included.weight(), 1u)});
  }
  record.n = message.n();
  record.plan_id = message.plan_id();
  record.rate = message.rate();
  record.momentum = message.momentum();
  record.result_checksum = message.result_checksum();
  return record;
}

absl::StatusOr<Outcome> FromMessage(v1::Outcome outcome) {
  switch (outcome) {
    case v1::OUTCOME_RESULT:
      return Outcome::kResult;
    case v1::OUTCOME_PENDING:
      return Outcome::kPending;
    case v1::OUTCOME_NEED:
      return Outcome::kNeed;
    case v1::OUTCOME_FENCED:
      return Outcome::kFenced;
    case v1::OUTCOME_INVALID:
      return Outcome::kInvalid;
    case v1::OUTCOME_BUSY:
      return Outcome::kBusy;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("outcome ", static_cast<int>(outcome), " is not known to this version"));
  }
}

constexpr int kContributionsMax = 1 << 20;

constexpr float kWeightMax = 1024;  // Equal to the maximum number of workers in a job.

// Converts a number of contributions. The shard checks whether that many are possible.
absl::StatusOr<uint32_t> WeightFromProto(float weight) {
  if (weight == 0) return 1;
  if (weight >= 1 && weight <= kWeightMax && weight == std::floor(weight)) {
    return static_cast<uint32_t>(weight);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("weight ", weight, " is not a number of contributions from 1 to ", kWeightMax));
}

v1::Outcome OutcomeToProto(Outcome outcome) {
  switch (outcome) {
    case Outcome::kResult:
      return v1::OUTCOME_RESULT;
    case Outcome::kPending:
      return v1::OUTCOME_PENDING;
    case Outcome::kNeed:
      return v1::OUTCOME_NEED;
    case Outcome::kFenced:
      return v1::OUTCOME_FENCED;
    case Outcome::kInvalid:
      return v1::OUTCOME_INVALID;
    case Outcome::kBusy:
      return v1::OUTCOME_BUSY;
  }
  return v1::OUTCOME_UNSPECIFIED;
}

void RecordToProto(const ClosingRecord& record, v1::ClosingRecord* out) {
  out->set_term(record.term);
  out->set_step(record.step);
  out->set_bundle(record.bundle);
  out->set_generation(record.generation);
  for (const Included& included : record.included) {
    v1::Included* one = out->add_included();
    one->set_rank(included.rank);
    one->set_origin_step(included.origin_step);
    one->set_checksum(included.checksum);
    one->set_skipped(included.skipped);
    if (included.weight != 1) one->set_weight(included.weight);
  }
  out->set_n(record.n);
  out->set_plan_id(record.plan_id);
  out->set_rate(record.rate);
  out->set_momentum(record.momentum);
  out->set_result_checksum(record.result_checksum);
}

v1::ExchangeReply ReplyWithoutResults(const ExchangeReply& answer, uint64_t server_incarnation) {
  v1::ExchangeReply reply;
  reply.set_outcome(OutcomeToProto(answer.outcome));
  reply.set_step(answer.step);
  reply.set_bundle(answer.bundle);
  if (answer.outcome == Outcome::kResult) RecordToProto(answer.record, reply.mutable_record());
  reply.set_base_version(answer.base_version);
  reply.set_version(answer.version);
  reply.set_need_from(answer.need_from);
  reply.set_retry_after_ms(answer.retry_after_ms);
  reply.set_message(ValidText(answer.message));
  reply.set_server_incarnation(server_incarnation);
  reply.set_checkpoint_step(answer.checkpoint_step);
  reply.set_term(answer.term);
  reply.set_exact(answer.exact);
  reply.set_staleness(answer.staleness);
  reply.set_open_step(answer.open_step);
  if (answer.plan != nullptr) PlanToProto(*answer.plan, reply.mutable_plan());
  for (const uint32_t rank : answer.members) reply.add_members(rank);
  return reply;
}

}  // namespace

grpc::ByteBuffer ExchangeRequestToBytes(const std::shared_ptr<const ExchangeRequest>& exchange,
                                        const Sender* sender, uint64_t ready_ns,
                                        const LinkReport* link) {
  v1::ExchangeRequest head;
  if (sender != nullptr) SenderToProto(*sender, head.mutable_sender());
  head.set_step(exchange->step);
  head.set_bundle(exchange->bundle);
  head.set_skip(exchange->skip);
  head.set_keys_only(exchange->keys_only);
  for (const uint32_t checksum : exchange->checksums) {
    head.add_contributions()->set_checksum(checksum);
  }
  head.set_plan_id(exchange->plan_id);
  head.set_base_version(exchange->base_version);
  head.set_acked_step(exchange->acked_step);
  head.set_checkpoint_step(exchange->checkpoint_step);
  head.set_generation(exchange->sender.generation);
  head.set_rate(exchange->rate);
  if (exchange->weight != 1) head.set_weight(static_cast<float>(exchange->weight));
  head.set_samples(exchange->work.samples);
  head.set_steps(exchange->work.steps);
  head.set_slack_us(exchange->work.slack_us);
  if (exchange->plan != nullptr) PlanToProto(*exchange->plan, head.mutable_plan());
  head.set_answered(exchange->answered);
  if (exchange->announced != nullptr) PlanToProto(*exchange->announced, head.mutable_announced());
  head.set_ready_ns(ready_ns);
  if (link != nullptr) LinkReportToProto(*link, head.mutable_link());
  MessageSlices message(head);
  for (const std::string& frame : exchange->frames) {
    message.AppendMessageOfBytes(v1::ExchangeRequest::kContributionsFieldNumber,
                                 v1::Contribution::kFrameFieldNumber, frame, exchange);
  }
  return message.Take();
}

grpc::ByteBuffer ProbeBytes(uint64_t ready_ns) {
  v1::ExchangeRequest probe;
  probe.set_probe(true);
  probe.set_ready_ns(ready_ns);
  return MessageSlices(probe).Take();
}

absl::StatusOr<ExchangeReply> ExchangeReplyFromProto(v1::ExchangeReply* message) {
  const absl::StatusOr<Outcome> outcome = FromMessage(message->outcome());
  if (!outcome.ok()) return outcome.status();
  ExchangeReply answer;
  answer.outcome = *outcome;
  answer.step = message->step();
  answer.bundle = message->bundle();
  answer.record = FromMessage(message->record());
  answer.results.reserve(message->results_size());
  for (std::string& frame : *message->mutable_results()) answer.results.push_back(std::move(frame));
  answer.base_version = message->base_version();
  answer.version = message->version();
  answer.need_from = message->need_from();
  answer.retry_after_ms = message->retry_after_ms();
  answer.message = message->message();
  answer.checkpoint_step = message->checkpoint_step();
  answer.term = message->term();
  answer.exact = message->exact();
  answer.staleness = message->staleness();
  answer.open_step = message->open_step();
  if (message->has_plan()) {
    absl::StatusOr<CompressionPlan> plan = PlanFromProto(message->plan());
    if (!plan.ok()) return plan.status();
    answer.plan = std::make_shared<const CompressionPlan>(*std::move(plan));
  }
  answer.members.assign(message->members().begin(), message->members().end());
  return answer;
}

absl::StatusOr<ExchangeRequest> ExchangeRequestFromProto(const Sender& known,
                                                         v1::ExchangeRequest* request) {
  if (request->contributions_size() > kContributionsMax) {
    return absl::InvalidArgumentError(absl::StrCat(request->contributions_size(),
                                                   " contributions in one request; at most ",
                                                   kContributionsMax));
  }
  const absl::StatusOr<uint32_t> weight = WeightFromProto(request->weight());
  if (!weight.ok()) return weight.status();
  ExchangeRequest exchange{
      .sender = request->has_sender() ? SenderFromProto(request->sender()) : known,
      .step = request->step(),
      .bundle = request->bundle(),
      .skip = request->skip(),
      .keys_only = request->keys_only(),
      .frames = {},
      .checksums = {},
      .plan_id = request->plan_id(),
      .base_version = request->base_version(),
      .acked_step = request->acked_step(),
      .checkpoint_step = request->checkpoint_step(),
      .rate = request->rate(),
      .weight = *weight,
      .work = {.samples = request->samples(),
               .steps = request->steps(),
               .slack_us = request->slack_us()},
      .plan = {},
      .answered = request->answered(),
      .announced = {}};
  if (request->has_plan()) {
    absl::StatusOr<CompressionPlan> plan = PlanFromProto(request->plan());
    if (!plan.ok()) return plan.status();
    exchange.plan = std::make_shared<const CompressionPlan>(*std::move(plan));
  }
  if (request->has_announced()) {
    absl::StatusOr<CompressionPlan> plan = PlanFromProto(request->announced());
    if (!plan.ok()) return plan.status();
    exchange.announced = std::make_shared<const CompressionPlan>(*std::move(plan));
  }
  if (request->generation() != 0) exchange.sender.generation = request->generation();
  for (v1::Contribution& contribution : *request->mutable_contributions()) {
    if (exchange.keys_only) {
      exchange.checksums.push_back(contribution.checksum());
    } else {
      exchange.frames.push_back(std::move(*contribution.mutable_frame()));
    }
  }
  return exchange;
}

grpc::ByteBuffer ProbeReplyBytes(uint64_t ready_ns, uint64_t held_ns) {
  v1::ExchangeReply reply;
  reply.set_ready_ns(ready_ns);
  reply.set_probe_held_ns(held_ns);
  return MessageSlices(reply).Take();
}

grpc::ByteBuffer ExchangeReplyToBytes(const std::shared_ptr<const ExchangeReply>& answer,
                                      uint64_t server_incarnation, uint64_t ready_ns) {
  v1::ExchangeReply head = ReplyWithoutResults(*answer, server_incarnation);
  head.set_ready_ns(ready_ns);
  MessageSlices message(head);
  for (const std::string& result : answer->results) {
    message.AppendBytes(v1::ExchangeReply::kResultsFieldNumber, result, answer);
  }
  return message.Take();
}

}  // namespace sluice::protocol
