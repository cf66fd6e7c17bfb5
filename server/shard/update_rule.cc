// SPDX-License-Identifier: Apache-2.0
#include "server/shard/update_rule.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/power.h"
#include "job/momentum.h"
#include "server/shard/rule_kernels.h"

namespace sluice::server {

absl::StatusOr<UpdateRule> UpdateRule::Create(const job::OptimizerSpec& spec) {
  if (spec.name == "sgd") return UpdateRule(Kind::kSgd, spec);
  if (spec.name == "adam") return UpdateRule(Kind::kAdam, spec);
  if (spec.name == "adamw") return UpdateRule(Kind::kAdamw, spec);
  if (spec.name == "rmsprop") return UpdateRule(Kind::kRmsprop, spec);
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer \"", spec.name, "\" is not known: use sgd, adam, adamw or rmsprop"));
}

UpdateRule::UpdateRule(Kind kind, const job::OptimizerSpec& spec) : kind_(kind), spec_(spec) {
  const size_t of_momentum = spec.momentum > 0 ? 1 : 0;
  switch (kind) {
    case Kind::kSgd:
      slots_ = of_momentum;
      break;
    case Kind::kAdam:
    case Kind::kAdamw:
      slots_ = 2;
      break;
    case Kind::kRmsprop:
      slots_ = 1 + of_momentum;
      break;
  }
}

float UpdateRule::momentum() const { return static_cast<float>(job::MomentumOf(spec_)); }

void UpdateRule::ChangeMomentum(uint64_t updates, float before, float now,
                                absl::Span<const absl::Span<float>> slots) const {
  if (momentum() == 0 || before == now) return;
  // The momentum slot is the first slot in sgd and Adam, and the last slot in rmsprop.
  const absl::Span<float> slot = kind_ == Kind::kRmsprop ? slots.back() : slots.front();
  const auto factor = static_cast<float>(job::BufferFactor(spec_, updates, before, now));
  for (float& value : slot) value *= factor;
}

void UpdateRule::Apply(uint64_t number, double rate, float momentum,
                       absl::Span<const float> gradient, absl::Span<float> parameters,
                       absl::Span<const absl::Span<float>> slots) const {
  Check(number > 0, "updates are counted from 1");
  Check(parameters.size() == gradient.size() && slots.size() == slots_,
        "an update has a gradient and slots for every parameter");
  for (const absl::Span<float>& slot : slots) {
    Check(slot.size() == gradient.size(), "slots are as long as their parameters");
  }
  const size_t count = gradient.size();
  const auto decay = static_cast<float>(spec_.weight_decay);
  // If the momentum is unchanged, the job file's values are used directly, so that the result is
  // the same bit for bit.
  const bool own = momentum == this->momentum();
  const double beta1 = own ? spec_.beta1 : momentum;
  if (!own) rate *= job::RateFactor(spec_, momentum);
  switch (kind_) {
    case Kind::kSgd:
      ApplySgd({.rate = static_cast<float>(rate),
                .decay = decay,
                .momentum = momentum,
                .nesterov = spec_.nesterov},
               gradient.data(), parameters.data(), slots_ > 0 ? slots[0].data() : nullptr, count);
      return;
    case Kind::kAdam:
    case Kind::kAdamw: {
      const bool apart = kind_ == Kind::kAdamw;
      const double correction1 = 1 - PowerOf(beta1, number);
      const double correction2 = 1 - PowerOf(spec_.beta2, number);
      ApplyAdam({.rate = static_cast<float>(rate / correction1),
                 .decay = apart ? 0 : decay,
                 .keep = static_cast<float>(apart ? 1 - rate * spec_.weight_decay : 1),
                 .beta1 = static_cast<float>(beta1),
                 .rest1 = static_cast<float>(1 - beta1),
                 .beta2 = static_cast<float>(spec_.beta2),
                 .rest2 = static_cast<float>(1 - spec_.beta2),
                 .root_correction = static_cast<float>(std::sqrt(correction2)),
                 .eps = static_cast<float>(spec_.eps)},
                gradient.data(), parameters.data(), slots[0].data(), slots[1].data(), count);
      return;
    }
    case Kind::kRmsprop:
      ApplyRmsprop({.rate = static_cast<float>(rate),
                    .decay = decay,
                    .alpha = static_cast<float>(spec_.alpha),
                    .rest = static_cast<float>(1 - spec_.alpha),
                    .eps = static_cast<float>(spec_.eps),
                    .momentum = momentum},
                   gradient.data(), parameters.data(), slots[0].data(),
                   slots_ > 1 ? slots[1].data() : nullptr, count);
      return;
  }
}

}  // namespace sluice::server
