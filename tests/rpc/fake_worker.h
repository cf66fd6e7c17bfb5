// SPDX-License-Identifier: Apache-2.0
// FakeWorker: a worker's side of the protocol, one message at a time, for tests of the server.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compress/codec_table.h"
#include "compress/frame.h"
#include "sluice/v1/coordinator.grpc.pb.h"
#include "sluice/v1/parameter_shard.grpc.pb.h"

namespace sluice {

// With this deadline, a broken test fails instead of hanging.
inline std::chrono::system_clock::time_point TestDeadline() {
  return std::chrono::system_clock::now() + std::chrono::seconds(100);
}

inline std::shared_ptr<grpc::Channel> TestChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

inline std::string NoneFrame(const std::vector<float>& values) {
  std::vector<std::byte> frame;
  const absl::Status encoded = compress::EncodeFrame(
      *compress::MakeCodec(compress::CodecSpec{.codec = compress::CodecId::kNone}),
      {.gradient = values, .residual = {}}, &frame);
  Check(encoded.ok(), "a test's values can be encoded");
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

class FakeWorker {
 public:
  using Stream = grpc::ClientReaderWriter<v1::ExchangeRequest, v1::ExchangeReply>;
  struct OpenStream {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<v1::ParameterShard::Stub> stub;
    std::unique_ptr<Stream> stream;
  };

  FakeWorker(const std::string& coordinator, uint32_t rank)
      : rank_(rank), coordinator_(v1::Coordinator::NewStub(TestChannel(coordinator))) {
    request_.set_job_name("test");
    request_.set_job_hash(9);
    request_.set_nonce(1000 + rank);
    request_.set_rank(rank);
    request_.set_parameters_sha256(std::string(32, 'p'));
    request_.set_software_version("1");
    request_.set_host("here");
    request_.set_pid(1);
    v1::TensorInfo* tensor = request_.mutable_table()->add_tensors();
    tensor->set_name("w");
    tensor->add_shape(8);
    tensor->set_dtype(v1::DTYPE_FLOAT32);
  }

  v1::JoinRequest& request() { return request_; }
  const v1::JoinReply& grant() const { return grant_; }

  grpc::Status Join() { return Join(TestDeadline()); }
  grpc::Status Join(std::chrono::system_clock::time_point deadline) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    return coordinator_->Join(&context, request_, &grant_);
  }
  v1::Sender Sender() const {
    v1::Sender sender;
    sender.set_job_uid(grant_.job_uid());
    sender.set_term(grant_.term());
    sender.set_rank(rank_);
    sender.set_incarnation(grant_.incarnation());
    sender.set_generation(grant_.generation());
    return sender;
  }
  v1::HeartbeatReply Beat() {
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    context.set_wait_for_ready(true);
    v1::HeartbeatRequest request;
    *request.mutable_sender() = Sender();
    request.set_replay_from(1);
    v1::HeartbeatReply reply;
    const grpc::Status status = coordinator_->Heartbeat(&context, request, &reply);
    Check(status.ok(), status.error_message().c_str());
    return reply;
  }
  v1::LeaveReply Leave(bool finished, const std::string& reason = "") {
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    v1::LeaveRequest request;
    *request.mutable_sender() = Sender();
    request.set_finished(finished);
    request.set_reason(reason);
    v1::LeaveReply reply;
    const grpc::Status status = coordinator_->Leave(&context, request, &reply);
    Check(status.ok(), status.error_message().c_str());
    return reply;
  }
  v1::GetStatusReply Status() {
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    v1::GetStatusReply reply;
    const grpc::Status status = coordinator_->GetStatus(&context, {}, &reply);
    Check(status.ok(), status.error_message().c_str());
    return reply;
  }

  OpenStream Open(uint32_t shard) const {
    OpenStream open;
    open.context = std::make_unique<grpc::ClientContext>();
    open.context->set_deadline(TestDeadline());
    open.stub = v1::ParameterShard::NewStub(TestChannel(grant_.shards(shard).address()));
    open.stream = open.stub->Exchange(open.context.get());
    // The server closes a new connection that sends more than 128 KiB before its first call began.
    open.stream->WaitForInitialMetadata();
    return open;
  }
  // Returns this rank's contribution to bundle 0 of a shard: four elements with `value`.
  v1::ExchangeRequest Contribution(uint64_t step, float value) const {
    v1::ExchangeRequest request;
    *request.mutable_sender() = Sender();
    request.set_step(step);
    request.set_acked_step(step - 1);
    request.add_contributions()->set_frame(NoneFrame({value, value, value, value}));
    return request;
  }

 private:
  const uint32_t rank_;
  const std::unique_ptr<v1::Coordinator::Stub> coordinator_;
  v1::JoinRequest request_;
  v1::JoinReply grant_;
};

// Returns the next reply except PENDING, because a server may omit PENDING.
inline v1::ExchangeReply AwaitReply(FakeWorker::OpenStream* open) {
  v1::ExchangeReply reply;
  do {
    Check(open->stream->Read(&reply), "a reply came");
  } while (reply.outcome() == v1::OUTCOME_PENDING);
  return reply;
}

// Sends the request and waits for the next reply.
inline v1::ExchangeReply Ask(FakeWorker::OpenStream* open, const v1::ExchangeRequest& request) {
  open->stream->Write(request);
  v1::ExchangeReply reply;
  Check(open->stream->Read(&reply), "a reply came");
  return reply;
}

}  // namespace sluice
