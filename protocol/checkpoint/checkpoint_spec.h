// CheckpointSpec: where and how often a job makes checkpoints.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::protocol {

// Job checkpoints (docs/checkpoints.md).
struct CheckpointSpec {
  std::string dir;        // Empty: the job has none.
  uint64_t every = 1000;  // Steps from one to the next.
  uint32_t keep = 2;      // Complete ones.
  // path: every process writes into `dir`, which all of them see. shards: each server has a `dir`
  // of its own, and workers send theirs to the servers.
  std::string store = "path";
  // Bytes that each worker keeps of what it sent, and each shard of what it answered, since the
  // newest complete checkpoint. Beyond it, and with 0, a loss is repaired by a rollback.
  uint64_t replay_limit = uint64_t{1} << 30;

  bool enabled() const { return !dir.empty(); }
  bool at_shards() const { return store == "shards"; }
};

}  // namespace sluice::protocol
