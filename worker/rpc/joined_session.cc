#include "worker/rpc/joined_session.h"

#include <algorithm>
#include <utility>

#include "worker/rpc/connection.h"

namespace sluice::worker {

JoinedSession::JoinedSession(const RemoteSessionOptions& options,
                             const protocol::TensorTable& table, const Membership& membership)
    : options_(options),
      sender_(membership.sender),
      activity_(options.clock->Now(), membership.restore_step),
      checkpoints_(options_, membership),
      steps_(options_, table, membership, &checkpoints_, &activity_),
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
          .on_reply = [this](const protocol::HeartbeatReply& reply) { steps_.Follow(reply.job); },
          .on_failure = [this](absl::Status status) { HeartbeatFailed(std::move(status)); }}) {}

void JoinedSession::HeartbeatFailed(absl::Status status) {
  // A removed worker that is still alive joins again as a new one.
  const bool removed = options_.exchange.elastic() && absl::IsFailedPrecondition(status);
  const bool lost = absl::IsUnavailable(status) || removed;
  steps_.Fail(lost ? LostServer(std::move(status), options_.checkpoint.enabled())
                   : std::move(status));
}

absl::Status JoinedSession::SaveCheckpoint(std::string state, std::vector<CheckpointFile> files) {
  absl::StatusOr<protocol::WorkerSnapshot> snapshot = steps_.SnapshotWhenDue();
  if (!snapshot.ok()) return snapshot.status();
  snapshot->trainer = std::move(state);
  checkpoints_.Write(*std::move(snapshot), std::move(files));
  return absl::OkStatus();
}

bool JoinedSession::FinishCheckpoints(absl::Duration limit) {
  activity_.WaitBegan(options_.clock->Now());
  const bool finished = checkpoints_.Finish(limit);
  activity_.WaitEnded(options_.clock->Now());
  return finished;
}

void JoinedSession::ReportParameters(uint64_t step, absl::string_view parameters_sha256) {
  // Without lockstep, ranks at the same step have seen different versions, so their hashes differ.
  if (!options_.exchange.in_lockstep()) return;
  activity_.ParametersHashed(step, parameters_sha256);
  heartbeat_.ReportParameters(step, std::string(parameters_sha256));
}

SessionFigures JoinedSession::figures() const {
  SessionFigures figures;
  steps_.FillFigures(&figures);
  activity_.FillFigures(&figures);
  return figures;
}

protocol::WorkerHeartbeat JoinedSession::LastWords() const {
  protocol::WorkerHeartbeat heartbeat = ComposeHeartbeat();
  activity_.FillHash(&heartbeat);
  return heartbeat;
}

protocol::WorkerHeartbeat JoinedSession::ComposeHeartbeat() const {
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
