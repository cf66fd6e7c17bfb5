// SPDX-License-Identifier: Apache-2.0
// UpdateRule: the optimizers that a job file can name. A shard applies one of them, element by
// element, to its parameters with the mean gradient of a step. Pure: equal inputs produce equal
// bits on every instruction set, so that another machine can repeat a step after a loss.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/optimizer_spec.h"

namespace sluice::server {

// The rules match the LibTorch optimizers of the same names, up to rounding:
//   sgd      Sutskever et al. (2013): m = momentum * m + g; w -= rate * m, or with nesterov
//            w -= rate * (g + momentum * m). Without momentum w -= rate * g, and no slot.
//   adam     Kingma and Ba (2015), with bias correction.
//   adamw    Loshchilov and Hutter (2019): as adam, with weight decay apart: w *= 1 - rate * decay.
//   rmsprop  Tieleman and Hinton (2012): v = alpha * v + (1 - alpha) * g^2;
//            w -= rate * g / (sqrt(v) + eps), through a momentum buffer if momentum is set.
// All but adamw add the weight decay to the gradient. The caller clips gradients.
class UpdateRule {
 public:
  // Fails with INVALID_ARGUMENT if the optimizer's name is unknown.
  static absl::StatusOr<UpdateRule> Create(const job::OptimizerSpec& spec);

  // State floats per parameter, at most two. They are 0 before the first update.
  size_t slots() const { return slots_; }

  // The momentum of the optimizer's settings (job/momentum.h, MomentumOf).
  float momentum() const;

  // Rescales the momentum slot when the momentum changes from `before` to `now`, before update
  // `updates` + 1. All `updates` earlier updates used `before` or were rescaled to it.
  void ChangeMomentum(uint64_t updates, float before, float now,
                      absl::Span<const absl::Span<float>> slots) const;
  // Performs update `number`, counted from 1, with `momentum` instead of the optimizer's own.
  // `rate` is the rate of the job file; if `momentum` is lower than the optimizer's own, the rate
  // is raised (RateFactor). All spans have the same length; `slots` has slots() spans.
  void Apply(uint64_t number, double rate, float momentum, absl::Span<const float> gradient,
             absl::Span<float> parameters, absl::Span<const absl::Span<float>> slots) const;

 private:
  enum class Kind { kSgd, kAdam, kAdamw, kRmsprop };

  UpdateRule(Kind kind, const job::OptimizerSpec& spec);

  Kind kind_;
  job::OptimizerSpec spec_;
  size_t slots_ = 0;
};

}  // namespace sluice::server
