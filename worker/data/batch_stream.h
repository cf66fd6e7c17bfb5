// BatchStream: one rank's batches of one epoch, made ahead of the steps that use them.
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
  uint64_t offset = 0;      // Of the deal in the epoch's deck (shard_sampler.h).
  uint64_t first_step = 0;  // Of the deal.
  uint64_t end_step = 0;    // Behind the last.
  uint32_t passes_per_step = 1;
  uint32_t prefetch = 0;  // Batches made ahead by a thread; 0: none, Next makes them.
};

// The batches of all passes that have samples, in order; which ones and what is in them does not
// depend on `prefetch`. One thread uses it. `dataset` and `sampler` must outlive it.
class BatchStream {
 public:
  BatchStream(const Dataset* dataset, const ShardSampler* sampler,
              const BatchStreamOptions& options);

  // How many samples a pass of a step of the deal has here; 0: this rank is out of data, and Next
  // has no batch for it.
  size_t SamplesOf(uint64_t step, uint32_t pass) const;
  // Errors are the dataset's, and what LibTorch throws; OUT_OF_RANGE: none is left.
  absl::StatusOr<Batch> Next();

 private:
  const ShardSampler* const sampler_;
  const std::vector<uint32_t> dealt_;
  Prefetcher<absl::StatusOr<Batch>> prefetcher_;
};

}  // namespace sluice::worker
