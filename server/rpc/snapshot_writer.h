// SPDX-License-Identifier: Apache-2.0
// SnapshotWriter: writes a shard's parts of job checkpoints on a separate thread, so that steps
// continue during a write. In addition to the shard's own state, it holds at most one snapshot and
// the bytes of that snapshot. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "protocol/disk_wait.h"
#include "protocol/snapshot.h"
#include "server/shard/snapshot_stats.h"

namespace sluice::server {

class SnapshotWriter {
 public:
  // Receives the outcome of each snapshot, on the writer's thread or on the thread that calls
  // Write.
  using Listener = std::function<void(const protocol::CheckpointPart&)>;

  // Called before each part; returns OK if the part may be written to the folder now.
  using MayWrite = std::function<absl::Status()>;

  SnapshotWriter(std::string dir, MayWrite may_write, Listener listener, const Clock* clock,
                 Logger logger);
  // Finishes the current write and discards a snapshot whose write has not begun.
  ~SnapshotWriter();

  // Hands a snapshot to the writer without blocking. Fails the snapshot if another one is being
  // written.
  void Write(std::shared_ptr<const protocol::ShardSnapshot> snapshot);

  SnapshotStats stats() const;
  // Describes the part that is being written. `what` is empty if there is none.
  protocol::DiskWait NowAtDisk() const;

 private:
  void Run();
  protocol::CheckpointPart WriteOne(std::shared_ptr<const protocol::ShardSnapshot> snapshot);
  protocol::CheckpointPart Failed(const protocol::ShardSnapshot& snapshot, absl::string_view why);

  const std::string dir_;
  const MayWrite may_write_;
  const Listener listener_;
  const Clock* const clock_;
  const Logger logger_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<const protocol::ShardSnapshot> waiting_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // True from Write until the listener has returned.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  SnapshotStats stats_ ABSL_GUARDED_BY(mutex_);
  uint64_t step_ ABSL_GUARDED_BY(mutex_) = 0;  // Valid while busy_.
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sluice::server
