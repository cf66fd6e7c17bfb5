// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/parameter_service.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include "absl/strings/str_cat.h"
#include "base/process_usage.h"
#include "protocol/wire/exchange_messages.h"
#include "protocol/wire/link_message.h"
#include "server/rpc/queued_stream.h"
#include "server/rpc/refused_call.h"

namespace sluice::server {
namespace {

using ExchangeStream = QueuedStream<grpc::ByteBuffer, grpc::ByteBuffer>;

// The stream of one worker. Messages are handled on the reading thread, one after another.
class ExchangeCall final : public ExchangeStream, public AnswerOutput {
 public:
  ExchangeCall(grpc::CallbackServerContext* context, const ParameterService::Limits& limits,
               ShardHost* host)
      : ExchangeStream(context,
                       {.messages = limits.answers_max, .bytes = AnswerStreams::kBytesMin}),
        message_bytes_max_(limits.message_bytes_max),
        host_(host),
        id_(host->Open(this)) {
    Begin();
  }

  void Send(std::shared_ptr<const grpc::ByteBuffer> message, uint64_t size) override {
    ExchangeStream::Send(std::move(message), size);
  }
  void LimitBytes(uint64_t bytes) override { ExchangeStream::LimitBytes(bytes); }
  void Close(const grpc::Status& status) override { ExchangeStream::Close(status); }

 private:
  void OnMessage(grpc::ByteBuffer* message) override {
    if (message->Length() > message_bytes_max_) {
      Close({grpc::StatusCode::RESOURCE_EXHAUSTED,
             absl::StrCat("a request of ", message->Length(), " bytes; the limit is ",
                          message_bytes_max_)});
      return;
    }
    const absl::Time here = host_->Now();
    const uint64_t bytes = message->Length();
    TraceFile* const trace = host_->trace();
    const absl::Time came = trace == nullptr ? absl::Time() : trace->Now();
    protocol::StageSpan span(host_->stages(), protocol::Stage::kReceive);
    v1::ExchangeRequest request;
    const grpc::Status parsed =
        grpc::GenericDeserialize<grpc::ProtoBufferReader, v1::ExchangeRequest>(message, &request);
    if (!parsed.ok()) {
      Close({grpc::StatusCode::INVALID_ARGUMENT, "the bytes are not an ExchangeRequest"});
      return;
    }
    if (request.probe()) return AnswerProbe(bytes, request, here);
    RequestArrival arrival{.came = here};
    if (request.has_link()) {
      arrival.link = protocol::LinkReportFromProto(request.link());
      arrival.up = meter_.Take();
    }
    meter_.Came(bytes, request.ready_ns(), absl::ToUnixNanos(here));
    absl::StatusOr<protocol::ExchangeRequest> exchange =
        protocol::ExchangeRequestFromProto(sender_, &request);
    if (!exchange.ok()) {
      host_->Refuse(id_, request.step(), request.bundle(),
                    std::string(exchange.status().message()));
      return;
    }
    sender_ = exchange->sender;
    if (trace != nullptr) {
      trace->Span("receive", came, trace->Now(),
                  {.step = exchange->step, .bundle = exchange->bundle});
    }
    span.Next(protocol::Stage::kSum);
    host_->Handle(id_, *std::move(exchange), arrival);
  }
  // Answers a probe immediately, without waiting for a turn, because a probe measures the link.
  void AnswerProbe(uint64_t bytes, const v1::ExchangeRequest& probe, absl::Time here) {
    meter_.Came(bytes, probe.ready_ns(), absl::ToUnixNanos(here), /*probe=*/true);
    const absl::Time now = host_->Now();
    auto reply = std::make_shared<const grpc::ByteBuffer>(
        protocol::ProbeReplyBytes(static_cast<uint64_t>(absl::ToUnixNanos(now)),
                                  static_cast<uint64_t>(absl::ToInt64Nanoseconds(now - here))));
    const size_t size = reply->Length();
    Send(std::move(reply), size);
  }
  void OnGone() override { host_->Closed(id_); }
  void WriteNext(const grpc::ByteBuffer* message) override {
    const protocol::StageSpan sending(host_->stages(), protocol::Stage::kSend);
    StartWrite(message);
  }

  const size_t message_bytes_max_;
  ShardHost* const host_;
  const StreamId id_;
  protocol::Sender sender_;  // The sender in the last message that named a sender.
  protocol::LinkMeter meter_;
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ParameterService::Exchange(
    grpc::CallbackServerContext* context) {
  const grpc::Status may = transport_->MayCall(*context, net::Method::kExchange);
  if (!may.ok()) return new RefusedStream<grpc::ByteBuffer, grpc::ByteBuffer>(may);
  return new ExchangeCall(context, limits_, host_);  // The object deletes itself.
}

grpc::ServerUnaryReactor* ParameterService::GetUsage(grpc::CallbackServerContext* context,
                                                     const v1::GetUsageRequest* /*request*/,
                                                     v1::GetUsageReply* reply) {
  if (grpc::ServerUnaryReactor* const refusal =
          RefusalOf(context, *transport_, net::Method::kGetUsage)) {
    return refusal;
  }
  reply->set_processor_seconds(CpuSecondsOfThisProcess());
  reply->set_peak_rss_bytes(PeakRssOfThisProcess());
  const protocol::StageSeconds seconds = host_->stages()->Seconds();
  for (const protocol::Stage stage : protocol::kServerStages) {
    v1::StageUsage* const usage = reply->add_stages();
    usage->set_stage(std::string(ToString(stage)));
    usage->set_processor_seconds(seconds[static_cast<size_t>(stage)]);
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace sluice::server
