// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard_threads.h"

namespace sluice::server {

ShardThreads::ShardThreads(size_t threads, protocol::StageTimes* stages)
    : parallel_(threads, [this, stages](absl::FunctionRef<void()> work) {
        const protocol::StageSpan span(stages, stage_.load());
        work();
      }) {}

Parallel* ShardThreads::For(protocol::Stage stage) {
  stage_.store(stage);
  return &parallel_;
}

}  // namespace sluice::server
