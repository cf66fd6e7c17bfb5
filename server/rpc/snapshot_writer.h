// SnapshotWriter: writes a shard's parts of job checkpoints on a thread of its own, so that steps
// go on meanwhile. Holds one snapshot at a time, in memory beside the shard's own state and once
// more as bytes. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "protocol/snapshot.h"
#include "server/coordinator/coordinator.h"
#include "server/shard/snapshot_stats.h"

namespace sluice::server {

class SnapshotWriter {
 public:
  // Told what became of each snapshot, on the writer's thread or the caller's of Write.
  using Listener = std::function<void(const protocol::CheckpointPart&)>;

  // Asked before each part: whether one may be written to the folder now.
  using MayWrite = std::function<absl::Status()>;

  SnapshotWriter(std::string dir, MayWrite may_write, Listener listener, const Clock* clock,
                 Logger logger);
  // What is being written is finished; what is not begun is left.
  ~SnapshotWriter();

  // Does not wait. While one is being written, the next counts as failed.
  void Write(std::shared_ptr<const protocol::ShardSnapshot> snapshot);

  SnapshotStats stats() const;
  // Name of the part that is being written; empty: none is.
  DiskWait NowAtDisk() const;

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
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // From Write until its listener has returned.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  SnapshotStats stats_ ABSL_GUARDED_BY(mutex_);
  uint64_t step_ ABSL_GUARDED_BY(mutex_) = 0;  // While busy_.
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sluice::server
