// SPDX-License-Identifier: Apache-2.0
#include "server/control/controller.h"

#include <algorithm>
#include <utility>

namespace sluice::server {

double MomentumFor(const Choice& choice, absl::Span<const ControlledTensor> tensors,
                   const job::MomentumRange& range) {
  std::vector<uint64_t> elements;
  elements.reserve(tensors.size());
  for (const ControlledTensor& tensor : tensors) elements.push_back(tensor.elements);
  double momentum = job::MomentumWith(choice.down.codecs, elements, range);
  for (const Coding& up : choice.up) {
    momentum = std::min(momentum, job::MomentumWith(up.codecs, elements, range));
  }
  return momentum;
}

Controller::Controller(std::unique_ptr<Policy> policy, std::vector<ControlledTensor> tensors,
                       const job::MomentumRange& momentum)
    : policy_(std::move(policy)), tensors_(std::move(tensors)), momentum_(momentum) {}

PolicyDecision Controller::First() { return Make(policy_->First(), 0); }

void Controller::Resume(uint64_t id, uint64_t step) {
  (void)First();
  plans_ = id;
  next_step_ = step;
}

std::optional<PolicyDecision> Controller::Next(const StepMeasurements& measured) {
  if (measured.step < next_step_) return std::nullopt;
  next_step_ = measured.step + 1;
  std::optional<Choice> choice = policy_->Next(measured);
  if (!choice) return std::nullopt;
  return Make(*std::move(choice), measured.step + job::kPlanDelay);
}

PolicyDecision Controller::Make(Choice choice, uint64_t effective_step) {
  PolicyDecision plan{
      .id = ++plans_, .effective_step = effective_step, .choice = std::move(choice)};
  plan.momentum = MomentumFor(plan.choice, tensors_, momentum_);
  return plan;
}

}  // namespace sluice::server
