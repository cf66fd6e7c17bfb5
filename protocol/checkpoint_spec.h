// SPDX-License-Identifier: Apache-2.0
// CheckpointSpec: the place and the interval of a job's checkpoints.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/enum_names.h"
#include "protocol/job_defaults.h"

namespace sluice::protocol {

// Key `checkpoint.store`: kPath means that all processes write into `dir` on a shared file system.
// kShards means that each server has its own `dir`, and that workers send their parts to servers.
enum class CheckpointStore : uint8_t { kPath, kShards };
constexpr auto NamesOf(CheckpointStore) {
  return std::to_array<EnumName<CheckpointStore>>(
      {{CheckpointStore::kPath, "path"}, {CheckpointStore::kShards, "shards"}});
}

// Settings of a job's checkpoints (docs/checkpoints.md).
struct CheckpointSpec {
  std::string dir;                                    // Empty if the job makes no checkpoints.
  uint64_t interval = defaults::kCheckpointInterval;  // Number of steps between checkpoints.
  uint32_t keep = defaults::kCheckpointKeep;          // Number of complete checkpoints to keep.
  CheckpointStore store = CheckpointStore::kPath;
  // Byte limit for the requests that each worker keeps, and for the results that each shard keeps,
  // since the newest complete checkpoint. If this is not enough, or if the limit is 0, the job
  // repairs a loss by rolling back.
  uint64_t replay_limit = defaults::kCheckpointReplayLimit;

  bool enabled() const { return !dir.empty(); }
  bool at_shards() const { return store == CheckpointStore::kShards; }
};

}  // namespace sluice::protocol
