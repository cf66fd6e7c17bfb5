#include "server/rpc/convert.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "protocol/wire/message_slices.h"
#include "protocol/wire/plan_message.h"

namespace sluice {
namespace {

constexpr int kContributionsMax = 1 << 20;
constexpr float kWeightMax = 1024;  // As workers of a job.

// A number of contributions; how many there can be the shard knows.
absl::StatusOr<uint32_t> WeightFromProto(float weight) {
  if (weight == 0) return 1;
  if (weight >= 1 && weight <= kWeightMax && weight == std::floor(weight)) {
    return static_cast<uint32_t>(weight);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("weight ", weight, " is no number of contributions, 1 to ", kWeightMax));
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

v1::ExchangeReply ReplyWithoutResults(const ExchangeAnswer& answer, uint64_t server_incarnation) {
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
  return reply;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

Sender SenderFromProto(const v1::Sender& sender) {
  return {.job_uid = sender.job_uid(),
          .term = sender.term(),
          .rank = sender.rank(),
          .incarnation = sender.incarnation(),
          .generation = sender.generation(),
          .server_incarnation = sender.server_incarnation()};
}

absl::StatusOr<Exchange> ExchangeFromProto(const Sender& known, v1::ExchangeRequest* request) {
  if (request->contributions_size() > kContributionsMax) {
    return absl::InvalidArgumentError(absl::StrCat(request->contributions_size(),
                                                   " contributions in one request; at most ",
                                                   kContributionsMax));
  }
  const absl::StatusOr<uint32_t> weight = WeightFromProto(request->weight());
  if (!weight.ok()) return weight.status();
  Exchange exchange{.sender = request->has_sender() ? SenderFromProto(request->sender()) : known,
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

v1::ExchangeReply ReplyToProto(const ExchangeAnswer& answer, uint64_t server_incarnation) {
  v1::ExchangeReply reply = ReplyWithoutResults(answer, server_incarnation);
  for (const std::string& result : answer.results) reply.add_results(result);
  return reply;
}

grpc::ByteBuffer ProbeReplyBytes(uint64_t ready_ns, uint64_t held_ns) {
  v1::ExchangeReply reply;
  reply.set_ready_ns(ready_ns);
  reply.set_probe_held_ns(held_ns);
  return MessageSlices(reply).Take();
}

grpc::ByteBuffer ReplyBytes(const std::shared_ptr<const ExchangeAnswer>& answer,
                            uint64_t server_incarnation, uint64_t ready_ns) {
  v1::ExchangeReply head = ReplyWithoutResults(*answer, server_incarnation);
  head.set_ready_ns(ready_ns);
  MessageSlices message(head);
  for (const std::string& result : answer->results) {
    message.AppendBytes(v1::ExchangeReply::kResultsFieldNumber, result, answer);
  }
  return message.Take();
}

}  // namespace sluice
