#include "server/rpc/coordinator_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/convert.h"

namespace sluice {
namespace {

constexpr size_t kCommandQueueMax = 64;

// Answered when everybody is there. Deletes itself.
class JoinCall final : public grpc::ServerUnaryReactor, public JoinWaiter {
 public:
  JoinCall(CoordinatorHost* host, WorkerJoin join, v1::JoinReply* reply)
      : host_(host), reply_(reply) {
    token_ = host_->Join(this, std::move(join));
    MutexLock lock(&mutex_);
    constructed_ = true;
    if (answered_ || cancelled_) FinishLocked();
  }

  void Answer(const absl::StatusOr<JoinGrant>& grant) override {
    MutexLock lock(&mutex_);
    if (grant.ok()) GrantToProto(*grant, reply_);
    status_ = ToGrpc(grant.status());
    answered_ = true;
    if (constructed_) FinishLocked();
  }

 private:
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { Finish(status_); }
  void OnCancel() override {
    // The reactor is bound to its call after the constructor returned, so the token is there.
    if (!host_->JoinCancelled(token_)) return;
    MutexLock lock(&mutex_);
    cancelled_ = true;
    status_ = grpc::Status::CANCELLED;
    if (constructed_) FinishLocked();
  }
  void OnDone() override {
    host_->JoinCancelled(token_);  // Returns after an Answer that is still on its way out.
    delete this;
  }

  CoordinatorHost* const host_;
  v1::JoinReply* const reply_;
  JoinToken token_ = 0;
  Mutex mutex_;
  bool constructed_ ABSL_GUARDED_BY(mutex_) = false;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

// One shard's Attach stream.
class AttachCall final : public ControlOutput {
 public:
  AttachCall(grpc::CallbackServerContext* context, CoordinatorHost* host)
      : ControlOutput(context, kCommandQueueMax), host_(host), id_(host->Open(this)) {
    StartReading();
  }

 private:
  void OnMessage(v1::ShardReport* report) override {
    if (report->has_hello() == greeted_) {
      Close({grpc::StatusCode::INVALID_ARGUMENT, "hello comes first, and once"});
      return;
    }
    switch (report->report_case()) {
      case v1::ShardReport::kHello:
        greeted_ = true;
        host_->ShardArrived(id_, HelloFromProto(report->hello()));
        break;
      case v1::ShardReport::kHealth:
        host_->ShardHealth(id_, HealthFromProto(report->health()));
        break;
      case v1::ShardReport::kAcknowledged:
        host_->ShardAcknowledged(id_, report->acknowledged());
        break;
      case v1::ShardReport::kFailed:
        host_->ShardFailed(id_, report->failed());
        break;
      case v1::ShardReport::kPart:
      case v1::ShardReport::kCheckpointNamed:
      case v1::ShardReport::REPORT_NOT_SET:
        break;
    }
  }
  void OnGone() override { host_->ShardGone(id_); }

  CoordinatorHost* const host_;
  const ControlStreamId id_;
  bool greeted_ = false;
};

template <typename Reply>
grpc::Status SetState(const absl::StatusOr<JobState>& state, Reply* reply) {
  if (!state.ok()) return ToGrpc(state.status());
  reply->set_phase(PhaseToProto(state->phase));
  reply->set_failure(state->failure);
  return grpc::Status::OK;
}

}  // namespace

grpc::ServerUnaryReactor* CoordinatorService::Join(grpc::CallbackServerContext* context,
                                                   const v1::JoinRequest* request,
                                                   v1::JoinReply* reply) {
  absl::StatusOr<WorkerJoin> join = JoinFromProto(*request);
  if (!join.ok()) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(join.status()));
    return reactor;
  }
  return new JoinCall(host_, *std::move(join), reply);
}

grpc::ServerUnaryReactor* CoordinatorService::Heartbeat(grpc::CallbackServerContext* context,
                                                        const v1::HeartbeatRequest* request,
                                                        v1::HeartbeatReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<WorkerHeartbeat> heartbeat = HeartbeatFromProto(*request);
  if (!heartbeat.ok()) {
    reactor->Finish(ToGrpc(heartbeat.status()));
    return reactor;
  }
  const absl::StatusOr<JobState> state = host_->Heartbeat(*heartbeat);
  if (state.ok()) reply->set_generation(state->generation);
  reply->set_server_incarnation(host_->server_incarnation());
  reactor->Finish(SetState(state, reply));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::Leave(grpc::CallbackServerContext* context,
                                                    const v1::LeaveRequest* request,
                                                    v1::LeaveReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<WorkerLeave> leave = LeaveFromProto(*request);
  reactor->Finish(leave.ok() ? SetState(host_->Leave(*leave), reply) : ToGrpc(leave.status()));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::GetStatus(grpc::CallbackServerContext* context,
                                                        const v1::GetStatusRequest* request,
                                                        v1::GetStatusReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const JobStatus status = host_->Status();
  if (!request->job_name().empty() && request->job_name() != status.job_name) {
    reactor->Finish(ToGrpc(absl::NotFoundError(
        absl::StrCat("job ", status.job_name, " runs here, not ", request->job_name()))));
    return reactor;
  }
  StatusToProto(status, reply);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerBidiReactor<v1::ShardReport, v1::ShardCommand>* ControlService::Attach(
    grpc::CallbackServerContext* context) {
  return new AttachCall(context, host_);  // Deletes itself.
}

}  // namespace sluice
