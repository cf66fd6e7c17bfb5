#include "protocol/wire/exchange_messages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "protocol/wire/link_message.h"
#include "protocol/wire/message_slices.h"
#include "protocol/wire/plan_message.h"

namespace sluice {
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

}  // namespace

void SetSender(const Sender& sender, v1::Sender* message) {
  message->set_job_uid(sender.job_uid);
  message->set_term(sender.term);
  message->set_rank(sender.rank);
  message->set_incarnation(sender.incarnation);
  message->set_generation(sender.generation);
  message->set_server_incarnation(sender.server_incarnation);
}

void SetPart(const CheckpointPart& part, v1::CheckpointPart* message) {
  message->set_term(part.term);
  message->set_step(part.step);
  message->set_name(ValidText(part.name));
  message->set_bytes(part.bytes);
  message->set_checksum(part.checksum);
  message->set_error(ValidText(part.error));
  message->set_server(part.server);
  message->set_file(part.file);
  message->set_unreadable(part.unreadable);
}

CheckpointPart TakePart(const v1::CheckpointPart& message) {
  return {.term = message.term(),
          .step = message.step(),
          .name = message.name(),
          .bytes = message.bytes(),
          .checksum = message.checksum(),
          .error = message.error(),
          .server = message.server(),
          .unreadable = message.unreadable(),
          .file = message.file()};
}

grpc::ByteBuffer RequestBytes(const std::shared_ptr<const Exchange>& exchange, const Sender* sender,
                              uint64_t ready_ns, const LinkReport* link) {
  v1::ExchangeRequest head;
  if (sender != nullptr) SetSender(*sender, head.mutable_sender());
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

absl::StatusOr<ExchangeAnswer> TakeAnswer(v1::ExchangeReply* message) {
  const absl::StatusOr<Outcome> outcome = FromMessage(message->outcome());
  if (!outcome.ok()) return outcome.status();
  ExchangeAnswer answer;
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
  return answer;
}

}  // namespace sluice
