// CheckpointSpec: the place and the interval of a job's checkpoints.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::protocol {

// Settings of a job's checkpoints (docs/checkpoints.md).
struct CheckpointSpec {
  std::string dir;           // Empty if the job makes no checkpoints.
  uint64_t interval = 1000;  // Number of steps between checkpoints.
  uint32_t keep = 2;         // Number of complete checkpoints to keep.
  // path: all processes write into `dir` on a shared file system. shards: each server has its own
  // `dir`, and workers send their parts to the servers.
  std::string store = "path";
  // Byte limit for the requests that each worker keeps, and for the results that each shard keeps,
  // since the newest complete checkpoint. If this is not enough, or if the limit is 0, the job
  // repairs a loss by rolling back.
  uint64_t replay_limit = uint64_t{1} << 30;

  bool enabled() const { return !dir.empty(); }
  bool at_shards() const { return store == "shards"; }
};

}  // namespace sluice::protocol
