// SPDX-License-Identifier: Apache-2.0
#include "follow/rpc/weights_service.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "follow/rpc/update_parts.h"
#include "net/grpc/grpc_status.h"
#include "protocol/wire/weights_messages.h"

namespace sluice::follow {
namespace {

// A follower that accepts no part for this long is disconnected, because it holds an update, which
// may be an anchor.
constexpr absl::Duration kPatience = absl::Minutes(5);

absl::Status NoFollowers() {
  return absl::FailedPreconditionError(
      "this job has no followers: add the section `followers` to its job file");
}

// A call that is refused. The object deletes itself.
class RefusedFollow final : public grpc::ServerWriteReactor<v1::FollowReply> {
 public:
  explicit RefusedFollow(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

// The call of one follower. It writes an update part by part, and then asks the channel for the
// next one. The object deletes itself.
class FollowCall final : public grpc::ServerWriteReactor<v1::FollowReply>, public UpdateReader {
 public:
  FollowCall(grpc::CallbackServerContext* context, WeightsHub* hub, const Clock* clock,
             const WeightsHub::Request& request)
      : context_(context), hub_(hub), clock_(clock), request_(request), have_(request.have) {}

  // Begins, or refuses the call.
  void Begin() {
    absl::StatusOr<std::shared_ptr<WeightsChannel>> channel = hub_->Enter(this, request_);
    {
      MutexLock lock(&mutex_);
      if (channel.ok()) {
        channel_ = *std::move(channel);
        StartSendInitialMetadata();
        Continue();
      } else {
        FinishLocked(net::ToGrpc(channel.status()));
      }
    }
    hub_->Poke();
  }

  void Wake(const std::optional<absl::Status>& end) override {
    MutexLock lock(&mutex_);
    if (end.has_value()) end_ = end;
    if (update_ != nullptr && clock_->Now() - write_began_ > kPatience) {
      // Unlike TryCancel, this function sends the reason to the follower.
      (void)grpc_call_cancel_with_status(
          context_->c_call(), GRPC_STATUS_RESOURCE_EXHAUSTED,
          absl::StrCat("the follower has not read for ", absl::FormatDuration(kPatience),
                       "; connect again")
              .c_str(),
          nullptr);
    }
    Continue();
  }

 private:
  // Chooses the next update if none is being written.
  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_ || update_ != nullptr || channel_ == nullptr) return;
    if (cancelled_) return FinishLocked(grpc::Status::CANCELLED);
    const UpdateLog::Choice choice = channel_->NextFor(have_);
    if (choice.next == UpdateLog::Next::kUpdate) {
      update_ = choice.update;
      at_ = 0;
      WritePart();
    } else if (choice.next == UpdateLog::Next::kNothing && end_.has_value()) {
      FinishLocked(net::ToGrpc(*end_));
    }
  }
  void WritePart() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    at_ = follow::WritePart(*update_, at_, &part_);
    write_began_ = clock_->Now();
    StartWrite(&part_);
  }
  void FinishLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    finished_ = true;
    Finish(status);
  }
  void OnWriteDone(bool ok) override {
    SharedUpdate received;
    {
      MutexLock lock(&mutex_);
      if (!ok) {
        FinishLocked(grpc::Status::CANCELLED);
        return;
      }
      if (at_ < update_->bytes.size()) {
        WritePart();
        return;
      }
      received = std::move(update_);
      update_ = nullptr;
      have_ = received->result;
    }
    hub_->Received(this, received->result, received->bytes.size());
    received.reset();
    {
      MutexLock lock(&mutex_);
      Continue();
    }
    hub_->Poke();
  }
  void OnCancel() override {
    MutexLock lock(&mutex_);
    // A write that has begun may still succeed.
    cancelled_ = true;
    if (update_ == nullptr) FinishLocked(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    hub_->Leave(this);
    delete this;
  }

  grpc::CallbackServerContext* const context_;
  WeightsHub* const hub_;
  const Clock* const clock_;
  const WeightsHub::Request request_;
  Mutex mutex_;
  std::shared_ptr<WeightsChannel> channel_ ABSL_GUARDED_BY(mutex_);
  std::optional<WeightsState> have_ ABSL_GUARDED_BY(mutex_);
  SharedUpdate update_ ABSL_GUARDED_BY(mutex_);  // Being written.
  size_t at_ ABSL_GUARDED_BY(mutex_) = 0;        // Bytes of it that are written.
  v1::FollowReply part_ ABSL_GUARDED_BY(mutex_);
  absl::Time write_began_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerUnaryReactor* WeightsService::Describe(grpc::CallbackServerContext* context,
                                                   const v1::DescribeWeightsRequest* /*request*/,
                                                   v1::DescribeWeightsReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  grpc::Status status = transport_->MayCall(*context, net::Method::kDescribeWeights);
  if (status.ok()) {
    absl::StatusOr<protocol::WeightsDescription> description = NoFollowers();
    if (hub_ != nullptr) description = describe_();
    status = net::ToGrpc(description.status());
    if (description.ok()) protocol::DescriptionToProto(*description, reply);
  }
  reactor->Finish(status);
  return reactor;
}

grpc::ServerWriteReactor<v1::FollowReply>* WeightsService::Follow(
    grpc::CallbackServerContext* context, const v1::FollowRequest* request) {
  const grpc::Status may = transport_->MayCall(*context, net::Method::kFollow);
  if (!may.ok()) return new RefusedFollow(may);
  if (hub_ == nullptr) return new RefusedFollow(net::ToGrpc(NoFollowers()));
  const std::optional<compress::ElementType> type = protocol::TypeFromProto(request->type());
  if (!type.has_value()) {
    return new RefusedFollow({grpc::StatusCode::INVALID_ARGUMENT,
                              absl::StrCat("type ", request->type(), " is unknown here")});
  }
  WeightsHub::Request wanted{
      .job_uid = request->job_uid(), .shard = request->shard(), .type = *type};
  if (request->has_have()) {
    const absl::StatusOr<WeightsState> state = protocol::StateFromProto(request->have());
    if (!state.ok()) return new RefusedFollow(net::ToGrpc(state.status()));
    wanted.have = *state;
  }
  auto* const call = new FollowCall(context, hub_, clock_, wanted);
  call->Begin();
  return call;
}

}  // namespace sluice::follow
