// SPDX-License-Identifier: Apache-2.0
// StepResults: the results of a worker's open or last step, by bundle, and what they mean for each
// tensor. Keeps the published frames until the encoder has observed them. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protocol/exchange.h"
#include "worker/core/chunk_index.h"
#include "worker/core/pipeline_options.h"
#include "worker/core/result_parts.h"
#include "worker/core/session.h"
#include "worker/core/tensor_arrivals.h"

namespace sluice::worker {

// The frames published for a bundle's chunks, one string per chunk. Owned by the StepResults; valid
// until its next step starts.
struct Published {
  absl::Span<const uint32_t> chunks;
  absl::Span<const std::string> frames;
};

class StepResults {
 public:
  // The options and the index must outlive the results. Tensors from `trained` on are buffers.
  StepResults(const PipelineOptions& options, const ChunkIndex& index, uint32_t trained);

  // Starts a step without results. Keeps the frames of the previous step for the encoder unless
  // `observed` is false: the encoder does not observe them.
  void StartStep(bool observed);
  // Adds the result of a bundle, once per step.
  void Add(uint32_t shard, protocol::ExchangeReply answer);

  // Returns true if no bundle's shard had an open step after `latest` when it sent the result.
  bool InTime(uint64_t latest) const;
  // Returns whether all results of the tensor have arrived.
  bool HasAll(uint32_t tensor) const { return arrivals_.HasAll(tensor); }
  // Returns the tensors whose results have all arrived, and that it has not returned in this step.
  std::vector<ReadyTensor> TakeReady(bool with_buffers);
  // As Pipeline::Parts, for a tensor whose results have arrived.
  absl::StatusOr<std::vector<ResultPart>> Parts(uint32_t tensor, size_t elements,
                                                ResultUse use) const;
  // Returns the part of the step's result that follows from the bundles' results. Sets steps_behind
  // only if `may_lag`.
  StepResult Summary(uint64_t step, bool may_lag) const;

  // Returns the frames to observe before the bundle is encoded.
  const std::vector<std::string>& published(uint32_t shard, uint32_t bundle) const {
    return bundles_[shard][bundle].published;
  }
  void DropPublished(uint32_t shard, uint32_t bundle) { bundles_[shard][bundle].published.clear(); }
  // Returns the frames that no encoding has observed, each bundle once.
  std::vector<Published> TakePublished();

  // Returns the version of the bundle's last result; 0 if none is known.
  uint64_t version(uint32_t shard, uint32_t bundle) const { return versions_[shard][bundle]; }
  const protocol::ClosingRecord& Record(uint32_t shard, uint32_t bundle) const {
    return bundles_[shard][bundle].record;
  }

 private:
  struct BundleResult {
    protocol::ClosingRecord record;
    bool exact = false;  // As in ExchangeReply.
    uint64_t staleness = 0;
    uint64_t open_step = 0;
    std::vector<uint32_t> members;
    std::vector<std::string> frames;
    // Frames of the last step with results, kept until the next encoding.
    std::vector<std::string> published;
    bool taken = false;  // TakePublished has returned `published` or `frames`.
  };

  bool HasMean(uint32_t tensor) const;
  absl::Status CheckUse(uint32_t tensor, size_t elements, ResultUse use) const;

  const PipelineOptions& options_;
  const ChunkIndex& index_;
  const uint32_t trained_;
  std::vector<std::vector<BundleResult>> bundles_;  // By shard and bundle.
  std::vector<std::vector<uint64_t>> versions_;     // By shard and bundle.
  TensorArrivals arrivals_;
};

}  // namespace sluice::worker
