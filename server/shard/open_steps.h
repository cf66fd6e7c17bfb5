// SPDX-License-Identifier: Apache-2.0
// OpenSteps: the bundles of the two steps to which lockstep ranks may contribute: the open step and
// the next one. No bundle of the next step closes before that step is open. With a quorum and
// fragments, also late work that waits for a step of its fragment. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "protocol/exchange.h"
#include "server/shard/closing_rule.h"
#include "server/shard/open_bundle.h"
#include "server/shard/shard.h"
#include "server/shard/shard_layout.h"

namespace sluice::server {

class OpenSteps {
 public:
  // Begins with `step`. All arguments must outlive this object. `elements` limits the memory for
  // sums that is kept for reuse.
  OpenSteps(const ShardOptions* options, const std::vector<BundleLayout>* bundles, uint64_t step,
            size_t elements, ShardThreads* threads = nullptr);

  // The lowest step with a bundle that is not closed.
  uint64_t step() const { return step_; }
  uint64_t next_step() const { return StepAfter(options_, step_); }
  bool IsClosed(uint64_t step, uint32_t bundle) const {
    return step < step_ || (step == step_ && closed_[bundle]);
  }
  // True if the bundle's next result is the one of this step.
  bool IsNext(uint64_t step, uint32_t bundle) const {
    return step == (closed_[bundle] ? next_step() : step_);
  }
  // The last closed step if no bundle of the open step is closed. Unset before a first step.
  std::optional<uint64_t> LastWhole() const {
    return step_ == 0 || closed_count_ > 0 ? std::nullopt : std::optional(step_ - 1);
  }
  bool AllClosed() const { return closed_count_ == closed_.size(); }
  // Returns the lowest bundle of the open step that is not closed.
  uint32_t LowestOpen() const;

  // Returns null before an arrival and once the bundle is closed.
  OpenBundle* Find(uint64_t step, uint32_t bundle) const {
    return (step == step_ ? open_ : next_)[bundle].get();
  }
  // Opens the bundle if it is not open yet. It waits for the members of its step.
  OpenBundle* FindOrOpen(uint64_t step, uint32_t bundle, const ClosingRule& rule);
  // Adds work whose own step has closed to the oldest step that exchanges its bundle, even if that
  // step already has work of the rank. With fragments, the work may wait for that step to become
  // the next one. Not for buffers.
  void AddLate(protocol::ExchangeRequest exchange, uint32_t checksum, const ClosingRule& rule);
  // Makes the bundle wait for the present members in both steps.
  void AwaitMembers(uint32_t bundle, const ClosingRule& rule);
  // Forgets that contributions of the rank are unanswered.
  void ForgetUnanswered(uint32_t rank);

  // Records that the sum of a bundle of the open step was forwarded. The bundle stays open.
  void HandOver(uint32_t bundle) { handed_[bundle] = true; }
  bool IsHandedOver(uint32_t bundle) const { return handed_[bundle]; }
  // Closes a bundle of the open step, and returns it.
  std::unique_ptr<OpenBundle> Close(uint32_t bundle);
  // Opens the next step. All bundles of the open step must be closed.
  void Advance(const ClosingRule& rule);

 private:
  using Bundles = std::vector<std::unique_ptr<OpenBundle>>;
  struct LateWork {
    protocol::ExchangeRequest exchange;
    uint32_t checksum = 0;
  };

  // Returns false if neither the open step nor the next one exchanges the work's bundle.
  bool JoinStep(LateWork* work, const ClosingRule& rule);

  const ShardOptions& options_;
  const std::vector<BundleLayout>& layouts_;
  SumPool sums_;  // Declared before the bundles, which use its memory.
  uint64_t step_;
  Bundles open_;  // Bundles of the open step. Null before an arrival and once closed.
  Bundles next_;
  std::vector<bool> closed_;  // By bundle, for the open step.
  std::vector<bool> handed_;  // By bundle, for the open step.
  size_t closed_count_ = 0;
  std::vector<LateWork> late_;  // Waits for a step that exchanges its fragment.
};

}  // namespace sluice::server
