// SPDX-License-Identifier: Apache-2.0
// BatchStream: one rank's batches of one epoch, prepared before the steps that use them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/dataset.h"
#include "worker/data/source/prefetcher.h"
#include "worker/data/source/shard_sampler.h"

namespace sluice::worker {

struct BatchStreamOptions {
  EpochKey epoch;
  uint64_t offset = 0;      // Offset of the deal in the epoch's deck (shard_sampler.h).
  uint64_t first_step = 0;  // Counted within the deal.
  uint64_t end_step = 0;    // One past the last step.
  uint32_t passes_per_step = 1;
  // Number of batches that a background thread prepares. With 0, Next makes each batch itself.
  uint32_t prefetch = 0;
};

// Provides the batches of all passes that have samples, in order. The batches and their contents do
// not depend on `prefetch`. Use it from one thread. `dataset` and `sampler` must outlive it.
class BatchStream {
 public:
  BatchStream(const Dataset* dataset, const ShardSampler* sampler,
              const BatchStreamOptions& options);

  // Returns the number of samples that this rank uses in one pass of a step. If the number is 0,
  // this rank is out of data, and Next has no batch for the pass.
  size_t SamplesOf(uint64_t step, uint32_t pass) const;
  // Returns the dataset's errors and LibTorch's exceptions as errors. Fails with OUT_OF_RANGE if no
  // batch is left.
  absl::StatusOr<Batch> Next();

 private:
  const ShardSampler* const sampler_;
  const std::vector<uint32_t> dealt_;
  Prefetcher<absl::StatusOr<Batch>> prefetcher_;
};

}  // namespace sluice::worker
