// SPDX-License-Identifier: Apache-2.0
// SnapshotStats: counts the checkpoint parts that one shard wrote or failed to write since its
// process began.
#pragma once

#include <cstdint>

namespace sluice::server {

struct SnapshotStats {
  uint64_t written = 0;
  uint64_t failed = 0;
  uint64_t last_bytes = 0;  // Bytes of the newest part that was written.
  double last_seconds = 0;  // Time that the write of this part took.
};

}  // namespace sluice::server
