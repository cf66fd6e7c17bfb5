// SPDX-License-Identifier: Apache-2.0
// LateWork: this worker's contributions that arrived after their bundles had closed, in a job with
// a quorum. A shard includes such a contribution in a later result, and damps it by its age if the
// job has `late_decay`. LateWork keeps the frames until then. It returns the part that was left
// out, for the worker's residual. A shard's checkpoint part lacks the pending contributions, so
// that the worker's part must have them in its residual. Pure; not thread-safe.
//
// At most two contributions to a bundle wait at a time, because a late contribution joins the next
// exchange of its bundle that is open, and the worker receives that result before it contributes
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "protocol/exchange.h"
#include "worker/core/pipeline_options.h"

namespace sluice::worker {

// A share of a bundle's contribution that no result will include.
struct ReturnedWork {
  absl::Span<const uint32_t> chunks;
  std::shared_ptr<const protocol::ExchangeRequest> contribution;  // One frame per chunk.
  float share = 0;
};

struct LateParts {
  std::vector<ReturnedWork> returned;  // Left out by results since the last call.
  std::vector<ReturnedWork> pending;   // In no result yet.
};

class LateWork {
 public:
  // The options must outlive this object.
  explicit LateWork(const PipelineOptions& options);

  // Takes the result of a bundle, and what this worker contributed to its step.
  void Resolve(uint32_t shard, const protocol::ExchangeReply& result,
               const std::shared_ptr<const protocol::ExchangeRequest>& own);
  // Returns what results have left out of the bundle since the last call.
  std::vector<ReturnedWork> Take(uint32_t shard, uint32_t bundle);
  // The same for all bundles, and what waits for a result.
  LateParts TakeAll();

 private:
  struct OfBundle {
    std::vector<std::shared_ptr<const protocol::ExchangeRequest>> waiting;
    std::vector<ReturnedWork> returned;
  };

  const PipelineOptions& options_;
  std::vector<std::vector<OfBundle>> bundles_;  // By shard and bundle. Empty without a quorum.
};

}  // namespace sluice::worker
