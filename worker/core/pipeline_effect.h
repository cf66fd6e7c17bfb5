// SPDX-License-Identifier: Apache-2.0
// PipelineEffect: what a Pipeline asks its caller to do.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "protocol/exchange.h"

namespace sluice::worker {

// Put `exchange` on the shard's stream, after everything that was put there before.
struct SendExchange {
  uint32_t shard = 0;
  std::shared_ptr<const protocol::ExchangeRequest> exchange;
};
// Call RetryDue(shard) after `delay`.
struct RetryLater {
  uint32_t shard = 0;
  absl::Duration delay;
};
// Every bundle has its result.
struct StepDone {
  uint64_t step = 0;
};
// For the log: the shard was restarted and lacks the steps from `from` on. This worker resends its
// contributions to the steps up to `to`.
struct ReplayBegun {
  uint32_t shard = 0;
  uint64_t from = 0;
  uint64_t to = 0;
};
// Final: the pipeline ignores every later event.
struct PipelineFailed {
  absl::Status status;
};
using PipelineEffect =
    std::variant<SendExchange, RetryLater, StepDone, ReplayBegun, PipelineFailed>;
using PipelineEffects = std::vector<PipelineEffect>;

}  // namespace sluice::worker
