// SPDX-License-Identifier: Apache-2.0
#include "worker/train/ema.h"

#include <algorithm>

namespace sluice::worker {

Ema::Ema(double decay, const std::vector<at::Tensor>& parameters)
    : decay_(decay), parameters_(parameters) {
  const at::NoGradGuard no_grad;
  averages_.reserve(parameters_.size());
  for (const at::Tensor& parameter : parameters_) averages_.push_back(parameter.detach().clone());
}

void Ema::Reset() {
  updates_ = 0;
  for (size_t i = 0; i < averages_.size(); ++i) averages_[i].copy_(parameters_[i].detach());
}

void Ema::Update() {
  const auto t = static_cast<double>(updates_++);
  const double decay = std::min(decay_, (1 + t) / (10 + t));
  for (size_t i = 0; i < averages_.size(); ++i) {
    averages_[i].mul_(decay).add_(parameters_[i].detach(), 1 - decay);
  }
}

void Ema::Swap() {
  for (size_t i = 0; i < averages_.size(); ++i) {
    // Copy in place, because hooks and the optimizer hold references to the parameters.
    const at::Tensor parameter = parameters_[i].detach();
    const at::Tensor before = parameter.clone();
    parameter.copy_(averages_[i]);
    averages_[i].copy_(before);
  }
}

void Ema::Restore(const std::vector<at::Tensor>& averages, uint64_t updates) {
  updates_ = updates;
  for (size_t i = 0; i < averages_.size(); ++i) averages_[i].copy_(averages[i]);
}

}  // namespace sluice::worker
