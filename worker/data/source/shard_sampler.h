// ShardSampler: which training samples one rank sees, in which order, step by step.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace sluice::worker {

struct ShardSamplerOptions {
  uint32_t samples = 0;  // Of the whole training set; at least 1.
  uint32_t ranks = 1;
  uint32_t rank = 0;             // One that is not below `ranks` is dealt nothing.
  uint32_t batch_size = 1;       // Of one pass.
  uint32_t passes_per_step = 1;  // Backward passes that make one step.
  uint64_t seed = 0;
};

// A function of its options and the epoch, with no state: each epoch deals one shuffled deck of all
// samples out to the ranks, so that every sample is seen once by one rank. Ranks may run out of
// samples before others do; all ranks count the same number of steps. In a step the ranks together
// take the deck's next cards, so that another number of ranks can be dealt what is left of it.
class ShardSampler {
 public:
  explicit ShardSampler(const ShardSamplerOptions& options);

  uint64_t steps_per_epoch() const { return StepsAfter(0); }
  // Until the deck without its first `offset` cards is dealt.
  uint64_t StepsAfter(uint64_t offset) const;
  // Where in the deck all ranks are after so many steps from `offset` on.
  uint64_t OffsetAfter(uint64_t offset, uint64_t steps) const;
  // This rank's samples of epoch `epoch` (counted from 0), in order; of the deck without its first
  // `offset` cards.
  std::vector<uint32_t> Deal(uint64_t epoch, uint64_t offset = 0) const;
  // Of such an order, pass `pass` of step `step` (both from 0 within the epoch). Empty: out of
  // data.
  absl::Span<const uint32_t> Batch(absl::Span<const uint32_t> dealt, uint64_t step,
                                   uint32_t pass) const;

 private:
  const ShardSamplerOptions options_;
};

}  // namespace sluice::worker
