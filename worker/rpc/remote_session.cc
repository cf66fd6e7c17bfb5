// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/remote_session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/wire/membership_messages.h"
#include "worker/rpc/connection.h"

namespace sluice::worker {
namespace {

// Limit for reporting that this worker gives up.
constexpr absl::Duration kAbandonTimeout = absl::Seconds(2);
// Limit for the upload of the last weights for followers.
constexpr absl::Duration kPublishTimeout = absl::Seconds(10);
// A finished worker asks at least this often whether all workers have finished, because the
// coordinator exits soon after that.
constexpr absl::Duration kEndPollMax = absl::Seconds(1);

}  // namespace

RemoteSession::RemoteSession(const RemoteSessionOptions& options,
                             const protocol::TensorTable& table, const Membership& membership,
                             CoordinatorClient* coordinator)
    : options_(options),
      table_(table),
      coordinator_(coordinator),
      sender_(membership.sender),
      heartbeat_interval_(membership.heartbeat),
      giver_(membership.members.empty() ? 0 : membership.members.front()),
      agreed_(membership.parameters_agree),
      activity_(options.clock->Now(), membership.restore_step),
      checkpoints_(options_, membership),
      steps_(options_, table, membership, &checkpoints_, &activity_),
      publisher_(WeightsPublisher::Create(options_, table, membership)),
      heartbeat_(Heartbeat::Options{
          .address = options.coordinator,
          .transport = options.transport,
          .interval = membership.heartbeat,
          .lease = membership.lease,
          .patience = options.checkpoint.enabled()
                          ? std::max(membership.lease, options.server.rejoin_timeout)
                          : membership.lease,
          .server_incarnation = membership.sender.server_incarnation,
          .term = membership.sender.term,
          .clock = options.clock,
          .logger = options.logger,
          .compose = [this] { return ComposeHeartbeat(); },
          .on_reply =
              [this](const protocol::HeartbeatReply& reply) {
                if (reply.job.log_level.has_value()) {
                  options_.logger.SetLowest(*reply.job.log_level);
                }
                if (publisher_ != nullptr) publisher_->GoTo(reply.job.shards);
                steps_.Follow(reply.job);
              },
          .on_failure = [this](absl::Status status) { HeartbeatFailed(std::move(status)); }}) {}

void RemoteSession::HeartbeatFailed(absl::Status status) {
  const bool lost = absl::IsUnavailable(status) || WasRemoved(status);
  steps_.Fail(lost ? LostServer(std::move(status), options_.checkpoint.enabled())
                   : std::move(status));
}

bool RemoteSession::WasRemoved(const absl::Status& status) const {
  return options_.exchange.elastic() && absl::IsFailedPrecondition(status);
}

absl::Status RemoteSession::Fail(absl::Status status) {
  steps_.Fail(std::move(status));
  return steps_.status();
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
  if (agreed_) return steps_.status();
  agreed_ = true;
  absl::Status status = CheckValues(parameters);
  if (!status.ok()) return Fail(std::move(status));
  if (options_.rank != giver_) {
    status = Skip();
  } else {
    // Last layer first, in the order of the bundles.
    for (size_t tensor = parameters.size(); tensor-- > 0 && status.ok();) {
      status = Submit(static_cast<uint32_t>(tensor), parameters[tensor]);
    }
  }
  if (!status.ok()) return status;
  const absl::StatusOr<StepResult> result = Wait();
  if (!result.ok()) return result.status();
  if (result->n_min != 1 || result->n_max != 1) {
    return Fail(absl::InternalError(
        absl::StrCat("the start parameters came from ", result->n_min, " to ", result->n_max,
                     " ranks, expected rank 0 alone: do worker and server run the same version?")));
  }
  for (size_t tensor = 0; tensor < parameters.size() && status.ok(); ++tensor) {
    status = Apply(static_cast<uint32_t>(tensor), parameters[tensor]);
  }
  return status;
}

absl::StatusOr<StepResult> RemoteSession::Wait() {
  absl::StatusOr<std::optional<StepResult>> result = WaitFor(absl::InfiniteDuration());
  if (!result.ok()) return result.status();
  return **std::move(result);
}

absl::Status RemoteSession::SaveCheckpoint(std::string state, std::vector<CheckpointFile> files) {
  absl::StatusOr<protocol::WorkerSnapshot> snapshot = steps_.SnapshotWhenDue();
  if (!snapshot.ok()) return snapshot.status();
  snapshot->trainer = std::move(state);
  checkpoints_.Write(*std::move(snapshot), std::move(files));
  return absl::OkStatus();
}

bool RemoteSession::FinishCheckpoints(absl::Duration limit) {
  activity_.WaitBegan(options_.clock->Now());
  const bool finished = checkpoints_.Finish(limit);
  activity_.WaitEnded(options_.clock->Now());
  return finished;
}

void RemoteSession::ReportParameters(uint64_t step, absl::string_view parameters_sha256) {
  // Without lockstep, ranks at the same step have seen different versions, so their hashes differ.
  if (!options_.exchange.in_lockstep()) return;
  activity_.ParametersHashed(step, parameters_sha256);
  heartbeat_.ReportParameters(step, std::string(parameters_sha256));
}

std::optional<SessionFigures> RemoteSession::figures() const {
  SessionFigures figures;
  steps_.FillFigures(&figures);
  activity_.FillFigures(&figures);
  return figures;
}

v1::LeaveRequest RemoteSession::MakeLeaveRequest(bool finished, absl::string_view reason) const {
  protocol::WorkerHeartbeat last = ComposeHeartbeat();
  activity_.FillHash(&last);
  v1::LeaveRequest request;
  protocol::LeaveToProto(
      {.last = std::move(last), .finished = finished, .reason = std::string(reason)}, &request);
  return request;
}

absl::Status RemoteSession::Leave() {
  const bool has_checkpoints = options_.checkpoint.enabled();
  const absl::Duration rejoin_timeout = options_.server.rejoin_timeout;
  if (!FinishCheckpoints(rejoin_timeout)) {
    options_.logger.Warning("the last checkpoint has not been written for ",
                            absl::FormatDuration(rejoin_timeout),
                            " (server.rejoin_timeout); this worker leaves without it");
  }
  if (publisher_ != nullptr) publisher_->Finish(kPublishTimeout);
  const absl::Status status = steps_.BeginLeaving();
  if (!status.ok()) return status;
  const v1::LeaveRequest request = MakeLeaveRequest(/*finished=*/true, "");
  do {
    if (absl::Status so_far = steps_.status(); !so_far.ok()) return so_far;
    const absl::StatusOr<v1::LeaveReply> reply = coordinator_->Leave(
        request, has_checkpoints ? rejoin_timeout : options_.server.connect_timeout);
    if (!reply.ok()) return LeaveFailed(reply.status());
    const protocol::JobState job = protocol::LeaveAnswerFromProto(*reply);
    if (job.phase == protocol::JobPhase::kFailed) {
      return absl::AbortedError(job.failure.empty() ? "the job has failed" : job.failure);
    }
    if (job.term > sender_.term) {
      return RollbackError(absl::StrCat(
          "the job rolled back while this worker waited for the others to finish (term ", job.term,
          ")"));
    }
    if (!has_checkpoints || job.phase == protocol::JobPhase::kFinished) return absl::OkStatus();
  } while (coordinator_->SleepFor(std::min(heartbeat_interval_, kEndPollMax)));
  return absl::CancelledError("this worker gave up while it waited for the others to finish");
}

absl::Status RemoteSession::LeaveFailed(absl::Status status) const {
  const bool lost =
      absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || WasRemoved(status);
  return lost ? LostServer(std::move(status), options_.checkpoint.enabled()) : status;
}

void RemoteSession::Abandon(absl::string_view reason) {
  (void)coordinator_->Leave(MakeLeaveRequest(/*finished=*/false, reason), kAbandonTimeout);
  steps_.Fail(absl::CancelledError(absl::StrCat("this worker gave up: ", reason)));
  coordinator_->Cancel();  // Ends a Leave call in progress.
}

protocol::WorkerHeartbeat RemoteSession::ComposeHeartbeat() const {
  const absl::Time now = options_.clock->Now();
  protocol::WorkerHeartbeat heartbeat;
  heartbeat.sender = sender_;
  steps_.FillHeartbeat(&heartbeat);
  checkpoints_.FillHeartbeat(now, &heartbeat);
  // The last, because a restore hides the wait of a write.
  activity_.FillHeartbeat(now, &heartbeat);
  return heartbeat;
}

}  // namespace sluice::worker
