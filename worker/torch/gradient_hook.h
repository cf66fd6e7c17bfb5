// Gradient hooks: a call for each gradient that a backward pass has finished accumulating.
#pragma once

#include <torch/types.h>

#include <functional>

#include "absl/status/status.h"

namespace sluice::worker {

// Runs on the thread that runs backward (with autograd's grad mode off), once per backward pass
// that reached the parameter; what it throws leaves through backward().
using GradientHook = std::function<void(const at::Tensor& parameter)>;

// `parameter` must be a leaf that requires a gradient. LibTorch has one such slot per tensor, which
// Python's register_post_accumulate_grad_hook shares: FAILED_PRECONDITION if it is taken.
absl::Status InstallGradientHook(const at::Tensor& parameter, GradientHook hook);

// Empties the slot. Not while backward runs.
void RemoveGradientHook(const at::Tensor& parameter);

}  // namespace sluice::worker
