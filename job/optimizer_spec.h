// SPDX-License-Identifier: Apache-2.0
// OptimizerSpec and LrScheduleSpec: the update rule for parameters and the schedule of its learning
// rate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "job/enums.h"
#include "protocol/job_defaults.h"

namespace sluice::job {

struct OptimizerSpec {
  std::string name =
      protocol::defaults::kOptimizerName;  // One of sgd, adam, adamw, muon and rmsprop.
  double lr = 0;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = protocol::defaults::kOptimizerBeta1;
  double beta2 = protocol::defaults::kOptimizerBeta2;
  double eps = protocol::defaults::kOptimizerEps;
  double alpha = protocol::defaults::kOptimizerAlpha;
  double weight_decay = 0;
  double clip_norm = 0;   // 0 disables clipping by norm.
  double clip_value = 0;  // 0 disables clipping by value.
  UpdateLocation location = UpdateLocation::kWorkers;
  // Upper limit of the momentum if gradients are delayed. If absent, job/momentum.h chooses the
  // limit.
  std::optional<double> delayed_momentum{};
};

struct LrScheduleSpec {
  std::string name =
      protocol::defaults::kLrScheduleName;  // One of constant, step, cosine and one_cycle.
  uint64_t warmup_steps = 0;
  uint64_t step_size = 0;
  double gamma = protocol::defaults::kLrScheduleGamma;
  double final_lr = 0;
  double warmup_fraction = protocol::defaults::kLrScheduleWarmupFraction;
};

}  // namespace sluice::job
