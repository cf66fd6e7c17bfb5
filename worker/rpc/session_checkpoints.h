// SPDX-License-Identifier: Apache-2.0
// SessionCheckpoints: a joined session's part in the job's checkpoints. It knows whether a
// checkpoint is due, and it owns the writer and the connection to the servers' store. In a job
// without checkpoints it has neither. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "protocol/membership.h"
#include "protocol/snapshot.h"
#include "worker/core/session.h"
#include "worker/rpc/checkpoint_writer.h"
#include "worker/rpc/membership.h"
#include "worker/rpc/remote_session_options.h"
#include "worker/rpc/store_client.h"

namespace sluice::worker {

class SessionCheckpoints {
 public:
  // `options.clock` must be set.
  SessionCheckpoints(const RemoteSessionOptions& options, const Membership& membership);

  // Records whether a checkpoint is due after this step. Fails with FAILED_PRECONDITION if one is
  // due but this worker's job file has no folder for it.
  absl::Status StepEnded(const StepResult& result);
  // Call this when the next step begins. If the program has not saved the checkpoint that was due
  // after `last_step`, reports this to the coordinator.
  void StepBegins(uint64_t last_step);
  // Ends the due checkpoint's turn, because the program saves it now. Fails with
  // FAILED_PRECONDITION if none is due after `step`.
  absl::Status TakeDue(uint64_t step);
  // Queues a checkpoint that TakeDue allowed, without blocking.
  void Write(protocol::WorkerSnapshot snapshot, std::vector<CheckpointFile> files);
  // Waits until everything is written and reported. Returns false after `limit`.
  bool Finish(absl::Duration limit) { return writer_ == nullptr || writer_->Finish(limit); }

  // Sets the newest parts, and the write that is in progress.
  void FillHeartbeat(absl::Time now, protocol::WorkerHeartbeat* heartbeat) const;
  // Tells the store that another process serves the shard.
  void Follow(const protocol::ShardPlace& place);
  // Ends the store's calls, because the session has ended.
  void CancelStore();
  // Null unless the servers keep the checkpoints.
  StoreClient* store() const { return store_.get(); }

 private:
  // True if a checkpoint was due, which it then is no more.
  bool EndDue();

  const std::unique_ptr<StoreClient> store_;
  const std::unique_ptr<CheckpointWriter> writer_;  // Null in a job without checkpoints.
  mutable Mutex mutex_;
  bool due_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::worker
