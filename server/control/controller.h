// Controller: makes numbered plans of what a policy chooses, with the momentum that goes with them.
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

// One for the job: the least that any direction or rank wants.
double MomentumFor(const Choice& choice, absl::Span<const ControlledTensor> tensors,
                   const job::MomentumRange& range);

class Controller {
 public:
  Controller(std::unique_ptr<Policy> policy, std::vector<ControlledTensor> tensors,
             const job::MomentumRange& momentum);

  // The plan of step 0. Once, first.
  Plan First();
  // Or, instead: goes on after plan `id`, with what is measured from `step` on.
  void Resume(uint64_t id, uint64_t step);
  // Plan `id` was made elsewhere; those that follow are numbered after it.
  void Took(uint64_t id) { plans_ = std::max(plans_, id); }
  // Measurements of each step, in order; a step that was seen already is passed over.
  std::optional<Plan> Next(const StepMeasurements& measured);

 private:
  Plan Make(Choice choice, uint64_t effective_step);

  std::unique_ptr<Policy> policy_;
  const std::vector<ControlledTensor> tensors_;
  const job::MomentumRange momentum_;
  uint64_t plans_ = 0;
  uint64_t next_step_ = 0;
};

}  // namespace sluice::server
