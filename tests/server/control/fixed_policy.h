// SPDX-License-Identifier: Apache-2.0
// FixedPolicy: always makes the same choice, so that a test covers only the Controller.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "server/control/policy.h"

namespace sluice::server {

class FixedPolicy : public Policy {
 public:
  explicit FixedPolicy(Choice choice) : choice_(std::move(choice)) {}

  Choice First() override { return choice_; }
  std::optional<Choice> Next(const StepMeasurements&) override { return std::nullopt; }
  std::unique_ptr<Policy> Clone() const override { return std::make_unique<FixedPolicy>(*this); }

 private:
  Choice choice_;
};

}  // namespace sluice::server
