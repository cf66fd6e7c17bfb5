// SPDX-License-Identifier: Apache-2.0
// Policy: decides how a job codes its tensors. A policy is deterministic: the result of Next
// depends only on the arguments of the constructor and on the measurements so far. A clone
// continues exactly as the original does. A policy has no clock and no randomness; the unit of time
// is a step.
#pragma once

#include <memory>
#include <optional>

#include "server/control/measurements.h"
#include "server/control/policy_decision.h"

namespace sluice::server {

class Policy {
 public:
  virtual ~Policy() = default;
  Policy() = default;
  Policy& operator=(const Policy&) = delete;

  // Returns the choice for step 0, before the first measurement.
  virtual Choice First() = 0;
  // Takes the measurements of one step. Call this once for each step, in order. A returned choice
  // takes effect at step + kPlanDelay. Without a value, the current choice continues.
  virtual std::optional<Choice> Next(const StepMeasurements& measured) = 0;
  virtual std::unique_ptr<Policy> Clone() const = 0;

 protected:
  Policy(const Policy&) = default;
};

}  // namespace sluice::server
