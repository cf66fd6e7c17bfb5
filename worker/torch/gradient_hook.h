// SPDX-License-Identifier: Apache-2.0
// Gradient hooks: functions that run when a backward pass has finished accumulating a gradient.
#pragma once

#include <torch/types.h>

#include <functional>

#include "absl/status/status.h"

namespace sluice::worker {

// Runs on the thread that runs backward (with autograd's grad mode off), once per backward pass
// that reached the parameter. Its exceptions propagate through backward().
using GradientHook = std::function<void(const at::Tensor& parameter)>;

// LibTorch has one hook slot per tensor, which Python's register_post_accumulate_grad_hook also
// uses. Fails with FAILED_PRECONDITION if the slot is taken.
absl::Status CheckHookSlot(const at::Tensor& parameter);

// Installs the hook. `parameter` must be a leaf that requires a gradient, with a free slot.
void InstallGradientHook(const at::Tensor& parameter, GradientHook hook);

// Clears the slot. Must not be called while backward runs.
void RemoveGradientHook(const at::Tensor& parameter);

}  // namespace sluice::worker
