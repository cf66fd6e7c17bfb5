// JoinedSession: a session from Join to its end: its steps, its checkpoints and its heartbeats.
// remote_session.h has the public interface.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/membership.h"
#include "worker/core/session.h"
#include "worker/rpc/heartbeat.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/remote_session_options.h"
#include "worker/rpc/remote_steps.h"
#include "worker/rpc/session_activity.h"
#include "worker/rpc/session_checkpoints.h"

namespace sluice::worker {

// The methods work as in Session. In a job with checkpoints, the loss of a shard or of the
// coordinator ends the session with a RollbackError.
class JoinedSession {
 public:
  // `options.clock` must be set. Opens the streams, and starts the encoder's thread and the
  // heartbeats.
  JoinedSession(const RemoteSessionOptions& options, const protocol::TensorTable& table,
                const Membership& membership);

  RemoteSteps& steps() { return steps_; }
  const RemoteSteps& steps() const { return steps_; }
  // Null unless the servers keep the checkpoints.
  StoreClient* store() const { return checkpoints_.store(); }

  absl::Status SaveCheckpoint(std::string state, std::vector<CheckpointFile> files);
  // Waits until the state passed to SaveCheckpoint is written and reported. Returns false after
  // `limit`.
  bool FinishCheckpoints(absl::Duration limit);
  // Until RestoreEnded, heartbeats report that this worker is reading the checkpoint that it starts
  // from, and why the last attempt failed.
  void RestoreFails(absl::string_view why) { activity_.RestoreFailed(why); }
  void RestoreEnded() { activity_.RestoreEnded(options_.clock->Now()); }

  void Report(const Progress& progress) { activity_.Reported(progress, options_.clock->Now()); }
  void ReportParameters(uint64_t step, absl::string_view parameters_sha256);
  SessionFigures figures() const;
  // Returns the content of the last heartbeat, for Leave.
  protocol::WorkerHeartbeat LastWords() const;

 private:
  protocol::WorkerHeartbeat ComposeHeartbeat() const;
  void HeartbeatFailed(absl::Status status);

  const RemoteSessionOptions options_;
  const protocol::Sender sender_;
  SessionActivity activity_;
  SessionCheckpoints checkpoints_;
  RemoteSteps steps_;    // Uses all of the above.
  Heartbeat heartbeat_;  // Calls this object from its thread.
};

}  // namespace sluice::worker
