// UpdateRule: what a shard does to its parameters with the mean gradient of a step: the optimizers
// that a job can name, element by element. Pure: the same inputs give the same bits on every
// instruction set, so that a step can be done again after a loss on another machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/optimizer_spec.h"

namespace sluice::server {

// Of the optimizers of LibTorch with the same names, to rounding:
//   sgd      Sutskever et al. (2013): m = momentum * m + g; w -= rate * m, or with nesterov
//            w -= rate * (g + momentum * m). Without momentum w -= rate * g, and no slot.
//   adam     Kingma and Ba (2015), with bias correction.
//   adamw    Loshchilov and Hutter (2019): as adam, with weight decay apart: w *= 1 - rate * decay.
//   rmsprop  Tieleman and Hinton (2012): v = alpha * v + (1 - alpha) * g^2;
//            w -= rate * g / (sqrt(v) + eps), by way of a momentum where there is one.
// But for adamw, weight decay is added to the gradient. Clipping is not its business.
class UpdateRule {
 public:
  static constexpr size_t kMaxSlots = 2;

  // INVALID_ARGUMENT: no such optimizer.
  static absl::StatusOr<UpdateRule> Create(const job::OptimizerSpec& spec);

  // How many floats it keeps for each parameter, at most kMaxSlots; 0 before the first update.
  size_t slots() const { return slots_; }

  // The optimizer's own (job/momentum.h, MomentumOf).
  float momentum() const;

  // Before update `updates` + 1: as many had the momentum `before`, or were made as if they had,
  // and it is `now` from here on.
  void ChangeMomentum(uint64_t updates, float before, float now,
                      absl::Span<const absl::Span<float>> slots) const;
  // Update number `number`, counted from 1, of these parameters, with a momentum in place of its
  // own. `rate` is the job file's: it is raised as the momentum is lowered (RateFactor). All spans
  // have one length; `slots` has slots() of them.
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
