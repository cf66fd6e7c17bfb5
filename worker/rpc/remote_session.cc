#include "worker/rpc/remote_session.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "protocol/membership.h"
#include "protocol/wire/membership_messages.h"
#include "worker/core/relay_session.h"
#include "worker/rpc/connection.h"
#include "worker/rpc/coordinator_client.h"
#include "worker/rpc/joined_session.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/session_restore.h"

namespace sluice::worker {
namespace {

// Limit for reporting that this worker gives up.
constexpr absl::Duration kAbandonTimeout = absl::Seconds(2);
// A finished worker asks at least this often whether all workers have finished, because the
// coordinator exits soon after that.
constexpr absl::Duration kEndPollMax = absl::Seconds(1);

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

uint64_t RandomNonce() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

class RemoteSession final : public RelaySession {
 public:
  explicit RemoteSession(RemoteSessionOptions options)
      : options_(Completed(std::move(options))),
        coordinator_({.address = options_.coordinator,
                      .transport = options_.transport,
                      .rank = options_.rank,
                      .backoff_min = options_.backoff_min,
                      .backoff_max = options_.backoff_max,
                      .clock = options_.clock,
                      .let_in = options_.rejoining,
                      .logger = options_.logger}) {}

  absl::StatusOr<JoinInfo> Join(const protocol::TensorTable& table,
                                absl::string_view parameters_sha256) override;
  absl::Status AgreeOnParameters(absl::Span<const absl::Span<float>> parameters) override;
  bool BuffersDue() const override { return live_ != nullptr && live_->steps().BuffersDue(); }
  bool AcceptsGpuViews() const override { return options_.device != nullptr; }
  absl::Status ApplyOnGpu(absl::Span<const GpuTensor> tensors, void* ready) override {
    return live_ == nullptr ? NotJoined() : live_->steps().ApplyOnGpu(tensors, ready);
  }
  absl::Status Submit(uint32_t tensor, const GradientView& gradient) override {
    return live_ == nullptr ? NotJoined() : live_->steps().Submit(tensor, gradient);
  }
  absl::Status SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions) override {
    return live_ == nullptr ? NotJoined() : live_->steps().SetWeight(shard, bundle, contributions);
  }
  uint32_t Contributions(uint32_t shard, uint32_t bundle) const override {
    return live_ == nullptr ? 0 : live_->steps().Contributions(shard, bundle);
  }
  uint64_t named_checkpoint() const override {
    return live_ == nullptr ? 0 : live_->steps().named_checkpoint();
  }
  uint64_t durable_step() const override {
    MutexLock lock(&mutex_);
    return live_ == nullptr ? 0 : live_->steps().durable_step();
  }
  absl::Status Skip() override { return live_ == nullptr ? NotJoined() : live_->steps().Skip(); }
  absl::StatusOr<StepResult> Wait() override {
    absl::StatusOr<std::optional<StepResult>> result = WaitFor(absl::InfiniteDuration());
    if (!result.ok()) return result.status();
    return **std::move(result);
  }
  absl::StatusOr<std::vector<ReadyTensor>> WaitForTensors(absl::Duration limit) override {
    if (live_ == nullptr) return NotJoined();
    return live_->steps().WaitForTensors(limit);
  }
  absl::StatusOr<std::optional<StepResult>> WaitFor(absl::Duration limit) override {
    if (live_ == nullptr) return NotJoined();
    return live_->steps().WaitFor(limit);
  }
  absl::Status Apply(uint32_t tensor, absl::Span<float> mean) override {
    return live_ == nullptr ? NotJoined() : live_->steps().Apply(tensor, mean, ResultUse::kMean);
  }
  absl::Status ApplyScaled(uint32_t tensor, float scale, absl::Span<float> values) override {
    return live_ == nullptr ? NotJoined()
                            : live_->steps().Apply(tensor, values, ResultUse::kAddend, scale);
  }
  absl::Status ApplyUpdate(uint32_t tensor, absl::Span<float> parameters) override {
    return live_ == nullptr ? NotJoined()
                            : live_->steps().Apply(tensor, parameters, ResultUse::kUpdate);
  }
  void SetRate(float rate) override {
    if (live_ != nullptr) live_->steps().SetRate(rate);
  }
  absl::Status SaveCheckpoint(std::string state, std::vector<CheckpointFile> files) override {
    if (live_ == nullptr) return NotJoined();
    return live_->SaveCheckpoint(std::move(state), std::move(files));
  }
  absl::StatusOr<BundleEncoder*> EncoderBetweenSteps() override {
    if (live_ == nullptr) return NotJoined();
    return live_->steps().EncoderBetweenSteps();
  }
  void Report(const Progress& progress) override {
    MutexLock lock(&mutex_);
    if (live_ != nullptr) live_->Report(progress);
  }
  void Tested(double accuracy) override {
    if (live_ != nullptr) live_->steps().Tested(accuracy);
  }
  void ReportParameters(uint64_t step, absl::string_view parameters_sha256) override {
    if (live_ != nullptr) live_->ReportParameters(step, parameters_sha256);
  }
  TrafficCounters traffic() const override {
    MutexLock lock(&mutex_);
    return live_ == nullptr ? TrafficCounters() : live_->steps().traffic();
  }
  protocol::StageSeconds stages() const override {
    return live_ == nullptr ? protocol::StageSeconds() : live_->steps().stages();
  }
  std::optional<SessionFigures> figures() const override {
    MutexLock lock(&mutex_);
    if (live_ == nullptr) return std::nullopt;
    return live_->figures();
  }
  absl::Status Leave() override;
  void Abandon(absl::string_view reason) override;
  void Cut() override;

 private:
  absl::Status NotJoined() const {
    return not_joined_.ok() ? absl::FailedPreconditionError(
                                  "this worker has not joined the job: call Join first")
                            : not_joined_;
  }
  absl::Status FailJoin(absl::Status status) { return not_joined_ = std::move(status); }
  absl::Status Restore(const Membership& membership);
  absl::Status Lost(const absl::Status& status) const;
  absl::Status CheckValues(absl::Span<const absl::Span<float>> parameters) const;
  v1::JoinRequest MakeJoinRequest(const protocol::TensorTable& table,
                                  absl::string_view parameters_sha256) const;
  v1::LeaveRequest MakeLeaveRequest(bool finished, absl::string_view reason);

  RemoteSessionOptions Completed(RemoteSessionOptions options) const {
    if (options.nonce == 0) options.nonce = RandomNonce();
    if (options.clock == nullptr) options.clock = &own_clock_;
    return options;
  }

  const SteadyClock own_clock_;
  const RemoteSessionOptions options_;
  CoordinatorClient coordinator_;
  absl::Status not_joined_;  // Why Join failed.
  protocol::TensorTable table_;
  JoinInfo info_;
  protocol::Sender sender_;
  absl::Duration heartbeat_;
  bool agreed_ = false;
  // Null before Join, which sets the pointer under the lock. Other threads than the training thread
  // may report, ask for figures or abandon the session.
  std::unique_ptr<JoinedSession> live_;
  mutable Mutex mutex_;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

v1::JoinRequest RemoteSession::MakeJoinRequest(const protocol::TensorTable& table,
                                               absl::string_view parameters_sha256) const {
  v1::JoinRequest request;
  protocol::JoinToProto({.job_name = options_.job_name,
                         .job_hash = options_.job_hash,
                         .nonce = options_.nonce,
                         .rank = options_.rank,
                         .table = table,
                         .parameters_sha256 = std::string(parameters_sha256),
                         .software_version = options_.software_version,
                         .host = HostName(),
                         .pid = static_cast<uint32_t>(getpid())},
                        &request);
  return request;
}

absl::StatusOr<JoinInfo> RemoteSession::Join(const protocol::TensorTable& table,
                                             absl::string_view parameters_sha256) {
  if (!not_joined_.ok()) return not_joined_;
  if (live_ != nullptr) return absl::FailedPreconditionError("this worker has joined already");
  const absl::Status valid = protocol::ValidateTensorTable(table);
  if (!valid.ok()) return FailJoin(valid);
  const bool patient = options_.checkpoint.enabled();
  const absl::StatusOr<v1::JoinReply> reply = coordinator_.Join(
      MakeJoinRequest(table, parameters_sha256),
      patient && options_.rejoining ? options_.server.rejoin_timeout : options_.server.join_timeout,
      patient ? std::max(options_.server.join_timeout, options_.server.rejoin_timeout)
              : options_.server.join_timeout);
  if (!reply.ok()) return FailJoin(reply.status());
  const absl::StatusOr<Membership> membership =
      ReadJoinReply(*reply, table, options_.rank, options_.shards, options_.exchange.compression);
  if (!membership.ok()) return FailJoin(membership.status());
  table_ = table;
  sender_ = membership->sender;
  heartbeat_ = membership->heartbeat;
  info_ = {.rank = options_.rank,
           .world_size = membership->world_size,
           .first_step = membership->first_step,
           .parameters_agree = membership->parameters_agree,
           .members = membership->members,
           .steps_behind = membership->late_joiner ? uint64_t{1} : 0};
  auto live = std::make_unique<JoinedSession>(options_, table, *membership);
  {
    MutexLock lock(&mutex_);
    if (abandoned_) return FailJoin(absl::CancelledError("this worker gave up while it joined"));
    live_ = std::move(live);
  }
  // Heartbeats continue meanwhile, because reading may take longer than a lease.
  if (membership->restore_step > 0) {
    if (absl::Status status = Restore(*membership); !status.ok()) return status;
    return info_;
  }
  if (absl::Status status = live_->steps().SetPlans(membership->plans); !status.ok()) {
    live_->steps().Fail(absl::InvalidArgumentError(
        absl::StrCat("the coordinator's answer to Join is invalid: ", status.message(),
                     "; do worker and server run the same version and job file?")));
    return live_->steps().status();
  }
  return info_;
}

absl::Status RemoteSession::Restore(const Membership& membership) {
  absl::StatusOr<RestoredState> restored = RestoreSession(options_, membership, live_.get());
  live_->RestoreEnded();
  if (restored.ok()) {
    info_.restored_step = membership.restore_step;
    info_.restored_world_size = restored->world_size;
    info_.restored = std::move(restored->trainer);
    return absl::OkStatus();
  }
  const absl::Status& status = restored.status();
  if (absl::Status ended = live_->steps().status(); !ended.ok()) return ended;
  if (IsRollback(status) || absl::IsCancelled(status)) {
    live_->steps().Fail(status);
    return live_->steps().status();
  }
  const std::string message = absl::StrCat("the checkpoint after step ", membership.restore_step,
                                           " cannot be restored: ", status.message());
  if (!absl::IsDataLoss(status)) {
    // The previous checkpoint would fail in the same way.
    live_->steps().Fail(absl::Status(status.code(), message));
    Abandon(message);
    return live_->steps().status();
  }
  options_.logger.Warning(message);
  const absl::Status told = coordinator_.ReportCheckpoint(
      membership.sender,
      {.term = membership.sender.term,
       .step = membership.restore_step,
       .name = protocol::WorkerPartName(membership.sender.rank, membership.sender.term),
       .error = std::string(status.message()),
       .unreadable = true},
      options_.server.connect_timeout);
  live_->steps().Fail(told.ok() || absl::IsUnavailable(told) ? RollbackError(message) : told);
  return live_->steps().status();
}

absl::Status RemoteSession::Lost(const absl::Status& status) const {
  // A removed worker that is still alive joins again as a new one.
  const bool removed = options_.exchange.elastic() && absl::IsFailedPrecondition(status);
  const bool lost = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || removed;
  return lost ? LostServer(status, options_.checkpoint.enabled()) : status;
}

absl::Status RemoteSession::CheckValues(absl::Span<const absl::Span<float>> parameters) const {
  for (size_t tensor = 0; tensor < parameters.size() && tensor < table_.size(); ++tensor) {
    for (size_t i = 0; i < parameters[tensor].size(); ++i) {
      if (std::isfinite(parameters[tensor][i])) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", table_[tensor].name, " is not finite before the first step: element ", i,
          " is ", parameters[tensor][i]));
    }
  }
  if (parameters.size() == table_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(parameters.size(), " parameters for a job of ", table_.size(), " tensors"));
}

absl::Status RemoteSession::AgreeOnParameters(absl::Span<const absl::Span<float>> parameters) {
  if (live_ == nullptr) return NotJoined();
  if (info_.parameters_agree || agreed_) return live_->steps().status();
  agreed_ = true;
  absl::Status status = CheckValues(parameters);
  if (!status.ok()) {
    live_->steps().Fail(status);
    return live_->steps().status();
  }
  const uint32_t giver = info_.members.empty() ? 0 : info_.members.front();
  if (options_.rank != giver) {
    status = live_->steps().Skip();
  } else {
    // Last layer first, in the order of the bundles.
    for (size_t tensor = parameters.size(); tensor-- > 0 && status.ok();) {
      status = live_->steps().Submit(static_cast<uint32_t>(tensor), parameters[tensor]);
    }
  }
  if (!status.ok()) return status;
  const absl::StatusOr<StepResult> result = Wait();
  if (!result.ok()) return result.status();
  if (result->n_min != 1 || result->n_max != 1) {
    live_->steps().Fail(absl::InternalError(
        absl::StrCat("the start parameters came from ", result->n_min, " to ", result->n_max,
                     " ranks, expected rank 0 alone: do worker and server run the same version?")));
    return live_->steps().status();
  }
  for (size_t tensor = 0; tensor < parameters.size() && status.ok(); ++tensor) {
    status =
        live_->steps().Apply(static_cast<uint32_t>(tensor), parameters[tensor], ResultUse::kMean);
  }
  return status;
}

v1::LeaveRequest RemoteSession::MakeLeaveRequest(bool finished, absl::string_view reason) {
  v1::LeaveRequest request;
  protocol::LeaveToProto(
      {.last = live_->LastWords(), .finished = finished, .reason = std::string(reason)}, &request);
  return request;
}

absl::Status RemoteSession::Leave() {
  if (live_ == nullptr) return NotJoined();
  if (!live_->FinishCheckpoints(options_.server.rejoin_timeout)) {
    options_.logger.Warning("the last checkpoint has not been written for ",
                            absl::FormatDuration(options_.server.rejoin_timeout),
                            " (server.rejoin_timeout); this worker leaves without it");
  }
  const absl::Status status = live_->steps().BeginLeaving();
  if (!status.ok()) return status;
  const v1::LeaveRequest request = MakeLeaveRequest(/*finished=*/true, "");
  do {
    if (absl::Status so_far = live_->steps().status(); !so_far.ok()) return so_far;
    const absl::StatusOr<v1::LeaveReply> reply = coordinator_.Leave(
        request, options_.checkpoint.enabled() ? options_.server.rejoin_timeout
                                               : options_.server.connect_timeout);
    if (!reply.ok()) return Lost(reply.status());
    const protocol::JobState job = protocol::LeaveAnswerFromProto(*reply);
    if (job.phase == protocol::JobPhase::kFailed) {
      return absl::AbortedError(job.failure.empty() ? "the job has failed" : job.failure);
    }
    if (job.term > sender_.term) {
      return RollbackError(absl::StrCat(
          "the job rolled back while this worker waited for the others to finish (term ", job.term,
          ")"));
    }
    if (!options_.checkpoint.enabled() || job.phase == protocol::JobPhase::kFinished) {
      return absl::OkStatus();
    }
  } while (coordinator_.SleepFor(std::min(heartbeat_, kEndPollMax)));
  return absl::CancelledError("this worker gave up while it waited for the others to finish");
}

void RemoteSession::Abandon(absl::string_view reason) {
  JoinedSession* live = nullptr;
  {
    MutexLock lock(&mutex_);
    abandoned_ = true;
    live = live_.get();
  }
  if (live == nullptr) return coordinator_.Cancel();
  (void)coordinator_.Leave(MakeLeaveRequest(/*finished=*/false, reason), kAbandonTimeout);
  live->steps().Fail(absl::CancelledError(absl::StrCat("this worker gave up: ", reason)));
  coordinator_.Cancel();  // Ends a Leave call in progress.
}

void RemoteSession::Cut() {
  JoinedSession* live = nullptr;
  {
    MutexLock lock(&mutex_);
    abandoned_ = true;
    live = live_.get();
  }
  if (live != nullptr) live->steps().Fail(absl::CancelledError("this session was cut"));
  coordinator_.Cancel();
}

}  // namespace

std::unique_ptr<Session> MakeRemoteSession(RemoteSessionOptions options) {
  return std::make_unique<RemoteSession>(std::move(options));
}

std::unique_ptr<RelaySession> MakeRelaySession(RemoteSessionOptions options) {
  return std::make_unique<RemoteSession>(std::move(options));
}

}  // namespace sluice::worker
