// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace sluice::worker {

void LossScale::Update(bool overflowed) {
  if (overflowed) {
    value_ = std::max(value_ / 2, kLeast);
    good_steps_ = 0;
  } else if (++good_steps_ == kGrowAfter) {
    value_ = std::min(value_ * 2, kLargest);
    good_steps_ = 0;
  }
}

bool LossScale::Restore(double value, int64_t good_steps) {
  int exponent = 0;
  const bool is_power = std::isfinite(value) && std::frexp(value, &exponent) == 0.5;
  if (!is_power || value < kLeast || value > kLargest) return false;
  if (good_steps < 0 || good_steps >= int64_t{kGrowAfter}) return false;
  value_ = value;
  good_steps_ = static_cast<uint32_t>(good_steps);
  return true;
}

}  // namespace sluice::worker
