// SnapshotStats: what became of one shard's parts of job checkpoints since its process began.
#pragma once

#include <cstdint>

namespace sluice::server {

struct SnapshotStats {
  uint64_t written = 0;
  uint64_t failed = 0;
  uint64_t last_bytes = 0;  // Of the last that was written.
  double last_seconds = 0;  // That took so long.
};

}  // namespace sluice::server
