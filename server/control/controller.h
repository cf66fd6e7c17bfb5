// Controller: makes numbered plans of what a policy chooses, with the momentum that goes with them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "server/control/policy.h"

namespace sluice {

struct MomentumOptions {
  double base = 0.9;       // As the job file has it: SGD's momentum, Adam's beta1.
  bool automatic = true;   // False: base always.
  double coded = 0.5;      // At most, of coded tensors.
  bool keep_rate = false;  // Adam-like: the rate stays.
};

class Controller {
 public:
  Controller(std::unique_ptr<Policy> policy, std::vector<ControlledTensor> tensors,
             const MomentumOptions& momentum);

  // The plan of step 0. Once, first.
  Plan First();
  // Or, instead: goes on after plan `id`, with what is measured from `step` on.
  void Resume(uint64_t id, uint64_t step);
  // Measurements of each step, in order; a step that was seen already is passed over.
  std::optional<Plan> Next(const StepMeasurements& measured);

 private:
  Plan Make(Choice choice, uint64_t effective_step);

  std::unique_ptr<Policy> policy_;
  const std::vector<ControlledTensor> tensors_;
  const MomentumOptions options_;
  double momentum_;
  uint64_t plans_ = 0;
  uint64_t next_step_ = 0;
};

}  // namespace sluice
