// Policy: decides how a job codes its tensors. A policy is its state: what Next returns follows
// from what the policy was made with and the measurements so far, and from nothing else; a clone
// goes on as the original does. No clock, no randomness; steps are the unit of time.
#pragma once

#include <memory>
#include <optional>

#include "server/control/measurements.h"
#include "server/control/plan.h"

namespace sluice::server {

class Policy {
 public:
  virtual ~Policy() = default;
  Policy() = default;
  Policy& operator=(const Policy&) = delete;

  // From step 0 on, before anything is measured.
  virtual Choice First() = 0;
  // What was measured of a step, each in its turn, once. A choice holds from step + kPlanDelay on;
  // none: nothing changes.
  virtual std::optional<Choice> Next(const StepMeasurements& measured) = 0;
  virtual std::unique_ptr<Policy> Clone() const = 0;

 protected:
  Policy(const Policy&) = default;
};

}  // namespace sluice::server
