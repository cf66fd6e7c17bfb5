// SPDX-License-Identifier: Apache-2.0
// RelayStep: a relay's state for the open step. It holds the sums that the rack's shards forwarded,
// by tensor, decides which tensors can go to the parent job, and builds the publications when the
// parent job has finished the step. If the relays do not wait for each other, it also keeps the
// parameters, because a result then leads from the relay's version to the newest one. Bundles are
// the same on both sides. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "protocol/compression_plan.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"
#include "server/coordinator/job_status.h"
#include "server/shard/shard.h"
#include "worker/core/session.h"

namespace sluice::relay {

// What the parent job has announced by the end of a step.
struct Announcements {
  uint64_t checkpoint_step = 0;  // The last checkpoint that was named; 0 if none was.
  std::shared_ptr<const protocol::CompressionPlan> plan{};  // May be null.
};

class RelayStep {
 public:
  // The parent job chooses `first_step`. If `parameters_agree` is false, step 0 comes before that
  // step. `keeps_parameters` is true if the relays do not wait for each other.
  RelayStep(protocol::TensorTable table, protocol::Layout layout, uint64_t first_step,
            bool parameters_agree, bool keeps_parameters = false);

  uint64_t step() const { return step_; }
  // Adds a bundle that a shard forwarded. Each bundle of the step must be added exactly once.
  // Returns the tensors that are now complete, in table order. Values without any contribution from
  // the rack are zero.
  std::vector<uint32_t> Take(uint32_t shard, const server::BundleSum& sum);
  // True if all bundles have arrived.
  bool complete() const { return missing_ == 0; }
  bool is_buffer(uint32_t tensor) const { return tensor >= trained_; }
  // Returns whether the parent job needs the sum of a bundle. It needs no empty ones, and buffers
  // and fragments only when they are due.
  bool IsNeeded(uint32_t shard, uint32_t bundle, bool buffers_due) const {
    const protocol::Bundle& of = layout_.bundles[shard][bundle];
    if (of.chunks.empty()) return false;
    if (of.buffers) return buffers_due;
    return protocol::IsFragmentDue(layout_.fragments, of.fragment, step_);
  }
  // Returns whether the parent job needs a tensor: a part of it belongs to a bundle that it needs.
  bool IsTensorNeeded(uint32_t tensor, bool buffers_due) const;
  size_t tensors() const { return table_.size(); }
  bool keeps_parameters() const { return keeps_parameters_; }
  // The sums of a tensor.
  absl::Span<float> values(uint32_t tensor) { return absl::MakeSpan(values_[tensor]); }
  std::vector<absl::Span<float>> all_values();
  // Keeps the values of step 0, after the ranks have agreed on them.
  void KeepParameters() {
    if (keeps_parameters_) parameters_ = values_;
  }
  // Where the parent job's result of a tensor goes when the parent job has finished the step: the
  // kept parameters, which a result updates, or else values(), which a mean replaces.
  absl::Span<float> result(uint32_t tensor) {
    return absl::MakeSpan(keeps_parameters_ ? parameters_[tensor] : values_[tensor]);
  }

  // Returns the publications that close the shard's bundles. `contributions` returns, for a bundle,
  // the number of contributions in the parent job's result. A bundle without contributions gets an
  // empty publication, unless the relay keeps parameters: these may contain other racks' updates.
  std::vector<server::Publication> Publications(
      uint32_t shard, const std::function<uint32_t(uint32_t)>& contributions,
      const Announcements& announced) const;
  void Next();

 private:
  const protocol::TensorTable table_;
  const protocol::Layout layout_;
  const uint32_t trained_;  // Number of trained tensors. Tensors from this index on are buffers.
  const uint64_t first_step_;
  uint64_t step_;
  const bool keeps_parameters_;
  std::vector<std::vector<float>> values_;      // By tensor.
  std::vector<std::vector<float>> parameters_;  // By tensor; empty unless they are kept.
  std::vector<uint32_t> chunks_;                // Number of chunks in the table, by tensor.
  std::vector<uint32_t> chunks_missing_;        // By tensor.
  std::vector<std::vector<bool>> taken_;        // By shard and bundle.
  size_t bundles_ = 0;
  size_t missing_ = 0;
};

// Returns the progress that a relay reports for its rack's workers: the step and epoch of the
// slowest worker, the mean of the losses, and the sum of the samples per second.
worker::Progress ProgressOf(const server::JobStatus& rack);

}  // namespace sluice::relay
