// SPDX-License-Identifier: Apache-2.0
// PartReader: reads the state of a shard from the checkpoint that a term begins with, from a disk
// that may be slow or temporarily unavailable. If another number of shards wrote the checkpoint, it
// reads the states of several of them and builds this shard's state. Thread-safe; reads must not
// overlap.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "job/job_spec.h"
#include "protocol/checkpoint_spec.h"
#include "protocol/disk_wait.h"
#include "protocol/shard_control.h"
#include "protocol/snapshot.h"

namespace sluice::server {

class PartReader {
 public:
  // Reads a part from another server's disk. Errors are as in Read.
  using Fetch = std::function<absl::StatusOr<std::string>(const protocol::FormerState& former,
                                                          uint64_t job_uid)>;

  // A part that cannot be read now counts as unreadable after the job's rejoin_timeout. `fetch` may
  // be null if no part is on another server. `job` and `clock` must outlive the reader.
  PartReader(const job::JobSpec* job, uint32_t shard, Fetch fetch, const Clock* clock);

  // Reads this shard's state from the checkpoint that `start` names. Blocks on the disk, and on the
  // network if parts are on other servers. Besides the result, it holds one part in memory.
  //
  // Fails with UNAVAILABLE if the part cannot be read now; a retry may succeed. Fails with
  // DATA_LOSS if the part is damaged or was unreadable for `patience`. Fails with
  // FAILED_PRECONDITION if earlier checkpoints would fail too, because the files are of a newer
  // version, the job file has no checkpoint.dir, or parts of servers that the job no longer has are
  // not here.
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
  // Returns the states of the shards that wrote the checkpoint, by shard. If there were as many as
  // now, only this shard's entry is set.
  absl::StatusOr<std::vector<protocol::FormerState>> FindStates(
      const protocol::StartShard& start) const;
  absl::StatusOr<protocol::ShardSnapshot> ReadState(const protocol::FormerState& state,
                                                    uint64_t job_uid) const;
  absl::Status FormerServersAreHere(size_t former_shards) const;

  const job::JobSpec& job_;
  const protocol::CheckpointSpec& checkpoint_;
  const uint32_t shard_;
  const Fetch fetch_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  Attempts attempts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::server
