#include "server/control/controller.h"

#include <utility>

#include "server/control/momentum.h"

namespace sluice {

Controller::Controller(std::unique_ptr<Policy> policy, std::vector<ControlledTensor> tensors,
                       const MomentumOptions& momentum)
    : policy_(std::move(policy)),
      tensors_(std::move(tensors)),
      options_(momentum),
      momentum_(momentum.base) {}

Plan Controller::First() { return Make(policy_->First(), 0); }

void Controller::Resume(uint64_t id, uint64_t step) {
  (void)First();
  plans_ = id;
  next_step_ = step;
}

std::optional<Plan> Controller::Next(const StepMeasurements& measured) {
  if (measured.step < next_step_) return std::nullopt;
  next_step_ = measured.step + 1;
  std::optional<Choice> choice = policy_->Next(measured);
  if (!choice) return std::nullopt;
  return Make(*std::move(choice), measured.step + kPlanDelay);
}

Plan Controller::Make(Choice choice, uint64_t effective_step) {
  Plan plan{.id = ++plans_, .effective_step = effective_step, .choice = std::move(choice)};
  plan.momentum = options_.automatic
                      ? MomentumFor(plan.choice, tensors_, options_.base, options_.coded)
                      : options_.base;
  // Nothing is in the buffers before step 0.
  plan.buffer_factor = plans_ == 1 ? 1 : BufferFactor(momentum_, plan.momentum);
  plan.rate_factor = options_.keep_rate ? 1 : SgdRateFactor(options_.base, plan.momentum);
  momentum_ = plan.momentum;
  return plan;
}

}  // namespace sluice
