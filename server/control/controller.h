// SPDX-License-Identifier: Apache-2.0
// Controller: turns a policy's choices into numbered plans, with the momentum that suits them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "job/momentum.h"
#include "server/control/policy.h"

namespace sluice::server {

// Returns one momentum for the whole job: the lowest that any direction or rank needs.
double MomentumFor(const Choice& choice, absl::Span<const ControlledTensor> tensors,
                   const job::MomentumRange& range);

class Controller {
 public:
  Controller(std::unique_ptr<Policy> policy, std::vector<ControlledTensor> tensors,
             const job::MomentumRange& momentum);

  // Returns the plan of step 0. Call this first, and only once.
  PolicyDecision First();
  // Continues after plan `id`, with measurements from `step` on. Call this instead of First.
  void Resume(uint64_t id, uint64_t step);
  // Reserves the numbers up to `id`, because another process made plan `id`.
  void Took(uint64_t id) { plans_ = std::max(plans_, id); }
  // Returns the plan that follows from the measurements of one step, or nullopt if the choice stays
  // the same. Call this for each step in order; it ignores repeated steps.
  std::optional<PolicyDecision> Next(const StepMeasurements& measured);

 private:
  PolicyDecision Make(Choice choice, uint64_t effective_step);

  std::unique_ptr<Policy> policy_;
  const std::vector<ControlledTensor> tensors_;
  const job::MomentumRange momentum_;
  uint64_t plans_ = 0;
  uint64_t next_step_ = 0;
};

}  // namespace sluice::server
