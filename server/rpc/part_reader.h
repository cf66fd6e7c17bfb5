// PartReader: reads a shard's part of the checkpoint that a term begins with, from a disk that may
// be slow or temporarily unavailable. Thread-safe; reads must not overlap.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "protocol/checkpoint_spec.h"
#include "protocol/disk_wait.h"
#include "protocol/shard_control.h"
#include "protocol/snapshot.h"

namespace sluice::server {

class PartReader {
 public:
  // A part that cannot be read now counts as unreadable after `patience`.
  PartReader(protocol::CheckpointSpec checkpoint, uint32_t shard, absl::Duration patience,
             const Clock* clock);

  // Reads this shard's part of the checkpoint that `start` names. Blocks on the disk.
  //
  // Fails with UNAVAILABLE if the part cannot be read now; a retry may succeed. Fails with
  // DATA_LOSS if the part is damaged or was unreadable for `patience`. Fails with
  // FAILED_PRECONDITION if earlier checkpoints would fail too, because the files are of a newer
  // version or the job file has no checkpoint.dir.
  absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> Read(
      const protocol::StartShard& start);
  // Describes the part that is being read or will be read again. `what` is empty if there is none.
  protocol::DiskWait NowAtDisk() const;

 private:
  // The checkpoint that is being read or that will be read again.
  struct Attempts {
    uint64_t step = 0;  // 0 if there is none.
    uint32_t term = 0;
    absl::Time since;
    std::string trouble{};  // Why the last attempt failed.
  };

  absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> TryToRead(
      const protocol::StartShard& start) const;
  absl::StatusOr<protocol::CheckpointPart> FindOwnPart(const protocol::StartShard& start) const;

  const protocol::CheckpointSpec checkpoint_;
  const uint32_t shard_;
  const std::string folder_;
  const absl::Duration patience_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  Attempts attempts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::server
