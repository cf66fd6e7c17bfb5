// RelayStep: what a relay holds of the step that is open: the sums that its rack's shards have
// handed on, tensor by tensor, which of these can go up, and what goes down once the step is done
// above. The bundles are the same on both sides. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"
#include "server/coordinator/job_status.h"
#include "server/shard/shard.h"
#include "worker/core/session.h"

namespace sluice::relay {

class RelayStep {
 public:
  // `first_step` as the job above says; `parameters_agree` false: step 0 comes before it.
  RelayStep(protocol::TensorTable table, protocol::Layout layout, uint64_t first_step,
            bool parameters_agree);

  uint64_t step() const { return step_; }
  // Takes what a shard handed on: each bundle of the step once. Returns the tensors of which that
  // was the last, in the order of the table. Where nobody in the rack contributed there are zeros.
  std::vector<uint32_t> Take(uint32_t shard, const server::BundleSum& sum);
  // Contributions inside, of what was taken.
  uint32_t Weight(uint32_t shard, uint32_t bundle) const { return taken_[shard][bundle].weight; }
  // All bundles are here.
  bool complete() const { return missing_ == 0; }
  bool is_buffer(uint32_t tensor) const { return tensor >= trained_; }
  bool has_buffers(uint32_t shard, uint32_t bundle) const {
    return layout_.bundles[shard][bundle].buffers;
  }
  size_t tensors() const { return table_.size(); }
  // Sums; once the step is done above, for its means to be put in their place.
  absl::Span<float> values(uint32_t tensor) { return absl::MakeSpan(values_[tensor]); }

  // Of the shard, all bundles: what closes them. `contributions` by bundle: how many are in the
  // mean above; of those with none nothing is published. `checkpoint_step` is the last that was
  // named above.
  std::vector<server::Publication> Publications(
      uint32_t shard, const std::function<uint32_t(uint32_t)>& contributions,
      uint64_t checkpoint_step) const;
  void Next();

 private:
  struct Taken {
    bool is_here = false;
    uint32_t weight = 0;
  };

  const protocol::TensorTable table_;
  const protocol::Layout layout_;
  const uint32_t trained_;  // Tensors; those from here on are buffers.
  const uint64_t first_step_;
  uint64_t step_;
  std::vector<std::vector<float>> values_;  // By tensor.
  std::vector<uint32_t> chunks_;            // By tensor; of the table.
  std::vector<uint32_t> chunks_missing_;    // By tensor.
  std::vector<std::vector<Taken>> taken_;   // By shard and bundle.
  size_t bundles_ = 0;
  size_t missing_ = 0;
};

// What a relay tells of its rack's workers: the step and epoch of the last of them, the mean of
// their losses, the sum of their samples.
worker::Progress ProgressOf(const server::JobStatus& rack);

}  // namespace sluice::relay
