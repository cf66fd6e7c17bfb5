// SPDX-License-Identifier: Apache-2.0
// ShardSampler: selects the training samples of one rank and their order, step by step.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace sluice::worker {

struct ShardSamplerOptions {
  uint32_t samples = 0;  // Size of the whole training set; at least 1.
  uint32_t ranks = 1;
  uint32_t rank = 0;             // A rank that is not below `ranks` gets no samples.
  uint32_t batch_size = 1;       // Per pass.
  uint32_t passes_per_step = 1;  // Backward passes of one step.
  uint64_t seed = 0;
};

// A function of its options and the epoch, without state. Each epoch deals one shuffled deck of all
// samples to the ranks, so that exactly one rank sees each sample. Some ranks may run out of
// samples before others, but all ranks count the same number of steps. In each step the ranks
// together take the deck's next cards, so that the rest of the deck can be dealt to another number
// of ranks.
class ShardSampler {
 public:
  explicit ShardSampler(const ShardSamplerOptions& options);

  uint64_t steps_per_epoch() const { return StepsAfter(0); }
  // Returns the number of steps that the deck lasts without its first `offset` cards.
  uint64_t StepsAfter(uint64_t offset) const;
  // Returns the position in the deck after all ranks have run `steps` steps from `offset` on.
  uint64_t OffsetAfter(uint64_t offset, uint64_t steps) const;
  // Returns this rank's samples of epoch `epoch` (counted from 0), in order, from the deck without
  // its first `offset` cards.
  std::vector<uint32_t> Deal(uint64_t epoch, uint64_t offset = 0) const;
  // Returns the part of a deal for pass `pass` of step `step` (both counted from 0 within the
  // deal). Empty if the rank is out of data.
  absl::Span<const uint32_t> Batch(absl::Span<const uint32_t> dealt, uint64_t step,
                                   uint32_t pass) const;

 private:
  const ShardSamplerOptions options_;
};

}  // namespace sluice::worker
