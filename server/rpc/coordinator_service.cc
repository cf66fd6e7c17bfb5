// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/coordinator_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "net/grpc/grpc_status.h"
#include "net/grpc/host_port.h"
#include "protocol/wire/common_messages.h"
#include "protocol/wire/membership_messages.h"
#include "protocol/wire/shard_messages.h"
#include "protocol/wire/tensor_table_message.h"
#include "server/rpc/queued_stream.h"
#include "server/rpc/refused_call.h"
#include "server/rpc/settings_message.h"
#include "server/rpc/status_reply.h"

namespace sluice::server {
namespace {

using ControlStream = QueuedStream<v1::ShardReport, v1::ShardCommand>;

// A StartShard carries the tensor table; the other commands are small.
constexpr QueueLimits kCommandLimits{.messages = 64, .bytes = 2 * protocol::kTableBytesMax};

// A call that waits for the coordinator. The object deletes itself.
class WaitingCall : public grpc::ServerUnaryReactor {
 protected:
  // Must be called once the token is known.
  void Constructed() {
    MutexLock lock(&mutex_);
    constructed_ = true;
    if (resolved_) Finish(status_);
  }
  void Resolve(const grpc::Status& status) {
    MutexLock lock(&mutex_);
    status_ = status;
    resolved_ = true;
    if (constructed_) Finish(status_);
  }
  // Stops waiting. Returns false if the call was already answered. If another thread is answering,
  // waits until that answer is complete and then returns false.
  virtual bool Forget() = 0;

 private:
  void OnCancel() override {
    // gRPC binds the reactor after the constructor has returned, so the token is known here.
    if (Forget()) Resolve(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    Forget();  // Waits for an answer that is in progress.
    delete this;
  }

  Mutex mutex_;
  bool constructed_ ABSL_GUARDED_BY(mutex_) = false;
  bool resolved_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

// A Join call. It is answered when all workers have joined.
class JoinCall final : public WaitingCall, public JoinWaiter {
 public:
  JoinCall(CoordinatorHost* host, protocol::WorkerJoin join, v1::JoinReply* reply)
      : host_(host), reply_(reply) {
    token_ = host_->Join(this, std::move(join));
    Constructed();
  }

  void Answer(const absl::StatusOr<protocol::JoinGrant>& grant) override {
    if (grant.ok()) protocol::GrantToProto(*grant, reply_);
    Resolve(net::ToGrpc(grant.status()));
  }

 private:
  bool Forget() override { return host_->JoinCancelled(token_); }

  CoordinatorHost* const host_;
  v1::JoinReply* const reply_;
  JoinToken token_ = 0;
};

// A RequestCheckpoint call. It is answered when a checkpoint is durable.
class CheckpointCall final : public WaitingCall {
 public:
  CheckpointCall(CoordinatorHost* host, v1::RequestCheckpointReply* reply) : host_(host) {
    token_ = host_->RequestCheckpoint([this, reply](const absl::StatusOr<uint64_t>& step) {
      if (step.ok()) reply->set_step(*step);
      Resolve(net::ToGrpc(step.status()));
    });
    Constructed();
  }

 private:
  bool Forget() override { return host_->RequestCancelled(token_); }

  CoordinatorHost* const host_;
  CheckpointToken token_ = 0;
};

// The Attach stream of one shard.
class AttachCall final : public ControlStream, public CommandOutput {
 public:
  AttachCall(grpc::CallbackServerContext* context, CoordinatorHost* host)
      : ControlStream(context, kCommandLimits), host_(host), id_(host->Open(this)) {
    Begin();
  }

  void Send(std::shared_ptr<const v1::ShardCommand> message, uint64_t size) override {
    ControlStream::Send(std::move(message), size);
  }
  void Close(const grpc::Status& status) override { ControlStream::Close(status); }

 private:
  void OnMessage(v1::ShardReport* report) override {
    if (report->has_hello() == greeted_) {
      Close({grpc::StatusCode::INVALID_ARGUMENT,
             "the first report must be hello, and no other may be"});
      return;
    }
    switch (report->report_case()) {
      case v1::ShardReport::kHello:
        greeted_ = true;
        host_->ShardArrived(id_, protocol::HelloFromProto(report->hello()));
        break;
      case v1::ShardReport::kHealth:
        host_->ShardHealth(id_, protocol::HealthFromProto(report->health()));
        break;
      case v1::ShardReport::kAcknowledged:
        host_->ShardAcknowledged(id_, report->acknowledged());
        break;
      case v1::ShardReport::kFailed:
        host_->ShardFailed(id_, report->failed());
        break;
      case v1::ShardReport::kPart:
        host_->ShardPart(id_, protocol::CheckedPartFromProto(report->part()));
        break;
      case v1::ShardReport::kCheckpointNamed:
        host_->ShardNamedCheckpoint(id_, report->checkpoint_named());
        break;
      case v1::ShardReport::kNotReproducible:
        host_->ShardNotReproducible(id_, report->not_reproducible().rank(),
                                    report->not_reproducible().reason());
        break;
      case v1::ShardReport::kRankRefused:
        host_->ShardRefusedRank(id_, report->rank_refused().rank(),
                                report->rank_refused().incarnation(),
                                report->rank_refused().reason());
        break;
      case v1::ShardReport::kPartExamined:
        host_->PartExamined(id_, protocol::CheckedPartFromProto(report->part_examined()));
        break;
      case v1::ShardReport::REPORT_NOT_SET:
        break;
    }
  }
  void OnGone() override { host_->ShardGone(id_); }

  CoordinatorHost* const host_;
  const ControlStreamId id_;
  bool greeted_ = false;
};

}  // namespace

grpc::ServerUnaryReactor* CoordinatorService::Join(grpc::CallbackServerContext* context,
                                                   const v1::JoinRequest* request,
                                                   v1::JoinReply* reply) {
  if (grpc::ServerUnaryReactor* const refusal =
          RefusalOf(context, *transport_, net::Method::kJoin)) {
    return refusal;
  }
  absl::StatusOr<protocol::WorkerJoin> join = protocol::JoinFromProto(*request);
  if (!join.ok()) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(net::ToGrpc(join.status()));
    return reactor;
  }
  logger_.Debug(net::AddressOfPeer(context->peer()), " asks to join as rank ", join->rank);
  return new JoinCall(host_, *std::move(join), reply);
}

grpc::ServerUnaryReactor* CoordinatorService::Heartbeat(grpc::CallbackServerContext* context,
                                                        const v1::HeartbeatRequest* request,
                                                        v1::HeartbeatReply* reply) {
  if (grpc::ServerUnaryReactor* const refusal =
          RefusalOf(context, *transport_, net::Method::kHeartbeat)) {
    return refusal;
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<protocol::WorkerHeartbeat> heartbeat =
      protocol::HeartbeatFromProto(*request);
  if (!heartbeat.ok()) {
    reactor->Finish(net::ToGrpc(heartbeat.status()));
    return reactor;
  }
  const absl::StatusOr<protocol::JobState> state = host_->Heartbeat(*heartbeat);
  if (state.ok()) {
    protocol::HeartbeatReplyToProto({.job = *state, .server_incarnation = host_->incarnation()},
                                    reply);
  } else {
    logger_.Debug("refused a heartbeat of ", net::AddressOfPeer(context->peer()), ", rank ",
                  heartbeat->sender.rank, ": ", state.status().message());
  }
  reactor->Finish(net::ToGrpc(state.status()));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::Leave(grpc::CallbackServerContext* context,
                                                    const v1::LeaveRequest* request,
                                                    v1::LeaveReply* reply) {
  if (grpc::ServerUnaryReactor* const refusal =
          RefusalOf(context, *transport_, net::Method::kLeave)) {
    return refusal;
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<protocol::WorkerLeave> leave = protocol::LeaveFromProto(*request);
  if (!leave.ok()) {
    reactor->Finish(net::ToGrpc(leave.status()));
    return reactor;
  }
  const absl::StatusOr<protocol::JobState> state = host_->Leave(*leave);
  if (state.ok()) protocol::LeaveAnswerToProto(*state, reply);
  reactor->Finish(net::ToGrpc(state.status()));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ReportCheckpoint(
    grpc::CallbackServerContext* context, const v1::ReportCheckpointRequest* request,
    v1::ReportCheckpointReply* /*reply*/) {
  if (grpc::ServerUnaryReactor* const refusal =
          RefusalOf(context, *transport_, net::Method::kReportCheckpoint)) {
    return refusal;
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(net::ToGrpc(host_->WorkerPart(protocol::SenderFromProto(request->sender()),
                                                protocol::CheckedPartFromProto(request->part()))));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::RequestCheckpoint(
    grpc::CallbackServerContext* context, const v1::RequestCheckpointRequest* request,
    v1::RequestCheckpointReply* reply) {
  if (grpc::ServerUnaryReactor* const refusal =
          RefusalOf(context, *transport_, net::Method::kRequestCheckpoint)) {
    return refusal;
  }
  const absl::Status here = CheckJobName(request->job_name());
  Audit(context, "requested a checkpoint", here);
  if (here.ok()) return new CheckpointCall(host_, reply);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(net::ToGrpc(here));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::EvictRank(grpc::CallbackServerContext* context,
                                                        const v1::EvictRankRequest* request,
                                                        v1::EvictRankReply* reply) {
  if (grpc::ServerUnaryReactor* const refusal =
          RefusalOf(context, *transport_, net::Method::kEvictRank)) {
    return refusal;
  }
  absl::Status status = CheckJobName(request->job_name());
  if (status.ok()) {
    absl::StatusOr<std::string> outcome =
        host_->Evict({.rank = request->rank(),
                      .reason = protocol::Shortened(request->reason()),
                      .allow_rollback = request->allow_rollback()});
    if (outcome.ok()) reply->set_outcome(ValidText(*outcome));
    status = outcome.status();
  }
  Audit(context, absl::StrCat("evicted rank ", request->rank()), status);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(net::ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ChangeSettings(
    grpc::CallbackServerContext* context, const v1::ChangeSettingsRequest* request,
    v1::ChangeSettingsReply* reply) {
  if (grpc::ServerUnaryReactor* const refusal =
          RefusalOf(context, *transport_, net::Method::kChangeSettings)) {
    return refusal;
  }
  const RunningSettings change = SettingsFromProto(*request);
  absl::Status status = CheckJobName(request->job_name());
  if (status.ok()) {
    const absl::StatusOr<RunningSettings> settings = host_->Change(change);
    if (settings.ok()) SettingsToProto(*settings, reply);
    status = settings.status();
  }
  Audit(context, absl::StrCat("changed settings: ", ToString(change)), status);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(net::ToGrpc(status));
  return reactor;
}

void CoordinatorService::Audit(grpc::CallbackServerContext* context, absl::string_view what,
                               const absl::Status& outcome) const {
  logger_.Audit(net::AddressOfPeer(context->peer()), " ", what,
                outcome.ok() ? "" : absl::StrCat(", which was refused: ", outcome.message()));
}

absl::Status CoordinatorService::CheckJobName(absl::string_view asked) const {
  const std::string here = host_->Status().job_name;
  if (asked.empty() || asked == here) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("job ", here, " runs here, not ", asked));
}

grpc::ServerUnaryReactor* CoordinatorService::GetStatus(grpc::CallbackServerContext* context,
                                                        const v1::GetStatusRequest* request,
                                                        v1::GetStatusReply* reply) {
  if (grpc::ServerUnaryReactor* const refusal =
          RefusalOf(context, *transport_, net::Method::kGetStatus)) {
    return refusal;
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status here = CheckJobName(request->job_name());
  if (here.ok()) StatusToProto(host_->Status(), host_->Report().warnings, reply);
  reactor->Finish(net::ToGrpc(here));
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Enter(grpc::CallbackServerContext* context,
                                                const v1::EnterRequest* /*request*/,
                                                v1::EnterReply* reply) {
  if (grpc::ServerUnaryReactor* const refusal =
          RefusalOf(context, *transport_, net::Method::kEnter)) {
    return refusal;
  }
  const absl::StatusOr<uint64_t> number = host_->NumberShard();
  if (number.ok()) reply->set_server_incarnation(*number);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(net::ToGrpc(number.status()));
  return reactor;
}

grpc::ServerBidiReactor<v1::ShardReport, v1::ShardCommand>* ControlService::Attach(
    grpc::CallbackServerContext* context) {
  const grpc::Status may = transport_->MayCall(*context, net::Method::kAttach);
  if (!may.ok()) return new RefusedStream<v1::ShardReport, v1::ShardCommand>(may);
  return new AttachCall(context, host_);  // The object deletes itself.
}

}  // namespace sluice::server
