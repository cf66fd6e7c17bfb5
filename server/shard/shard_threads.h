// SPDX-License-Identifier: Apache-2.0
// ShardThreads: the threads on which a shard sums contributions and encodes results.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/parallel.h"
#include "protocol/stage_times.h"

namespace sluice::server {

class ShardThreads {
 public:
  // Starts `threads` - 1 threads; the shard's own thread is the other one. Times of the threads go
  // to `stages`, which may be null.
  ShardThreads(size_t threads, protocol::StageTimes* stages);

  size_t lanes() const { return parallel_.lanes(); }
  // Returns the threads. Until the next call, what they do counts toward `stage`.
  Parallel* For(protocol::Stage stage);

 private:
  std::atomic<protocol::Stage> stage_ = protocol::Stage::kSum;
  Parallel parallel_;
};

}  // namespace sluice::server
