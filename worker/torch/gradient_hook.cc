// SPDX-License-Identifier: Apache-2.0
// Only this file uses torch::autograd::impl, which LibTorch does not guarantee to keep.
#include "worker/torch/gradient_hook.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace sluice::worker {
namespace {

class CallOnAccumulated final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit CallOnAccumulated(GradientHook hook) : hook_(std::move(hook)) {}
  void operator()(const torch::autograd::Variable& parameter) override { hook_(parameter); }

 private:
  const GradientHook hook_;
};

}  // namespace

absl::Status CheckHookSlot(const at::Tensor& parameter) {
  if (torch::autograd::impl::post_acc_grad_hooks(parameter) == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "it already has a post-accumulate gradient hook, and LibTorch supports only one: remove "
      "the other one, or use one DataParallel per model");
}

void InstallGradientHook(const at::Tensor& parameter, GradientHook hook) {
  torch::autograd::impl::set_post_acc_grad_hooks(
      parameter, std::make_unique<CallOnAccumulated>(std::move(hook)));
}

void RemoveGradientHook(const at::Tensor& parameter) {
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

}  // namespace sluice::worker
