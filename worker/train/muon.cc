// SPDX-License-Identifier: Apache-2.0
#include "worker/train/muon.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/check.h"

namespace sluice::worker {
namespace {

namespace optim = torch::optim;

// The coefficients of x, x^3 and x^5 in each step, as in MuLoCo (Thérien et al., arXiv 2505.23725).
constexpr double kSteps[][3] = {{4.0848, -6.8946, 2.9270},
                                {3.9505, -6.3029, 2.6377},
                                {3.7418, -5.5913, 2.3037},
                                {2.8769, -3.1427, 1.2046},
                                {2.8366, -3.0525, 1.2012}};
constexpr double kLeastNorm = 1e-30;  // Only avoids a division by 0.
constexpr double kRootMeanSquare = 0.2;

void StepMatrix(const optim::AdamWOptions& options, const at::Tensor& parameter,
                optim::AdamWParamState* state) {
  const at::Tensor& gradient = parameter.grad();
  if (!state->exp_avg().defined()) state->exp_avg(torch::zeros_like(parameter));
  state->step(state->step() + 1);
  const at::Tensor& mean = state->exp_avg();
  mean.lerp_(gradient, 1 - std::get<0>(options.betas()));
  const at::Tensor change = Orthogonalized(mean.flatten(1)).view_as(parameter);
  const auto larger =
      static_cast<double>(std::max(parameter.size(0), parameter.numel() / parameter.size(0)));
  parameter.mul_(1 - options.lr() * options.weight_decay());
  parameter.add_(change, -options.lr() * kRootMeanSquare * std::sqrt(larger));
}

}  // namespace

at::Tensor Orthogonalized(const at::Tensor& matrix) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x / (x.norm() + kLeastNorm);
  for (const auto& [first, third, fifth] : kSteps) {
    const at::Tensor square = x.mm(x.t());
    x = first * x + torch::addmm(square, square, square, /*beta=*/third, /*alpha=*/fifth).mm(x);
  }
  return tall ? x.t() : x;
}

Muon::Muon(std::vector<at::Tensor> matrices, std::vector<at::Tensor> others,
           const optim::AdamWOptions& options)
    : AdamW({optim::OptimizerParamGroup(std::move(others)),
             optim::OptimizerParamGroup(std::move(matrices))},
            options) {}

at::Tensor Muon::step(LossClosure closure) {
  Check(closure == nullptr, "Muon takes no closure");
  const torch::NoGradGuard no_grad;
  {
    // AdamW steps all groups that it sees.
    optim::OptimizerParamGroup matrices = std::move(param_groups_.back());
    param_groups_.pop_back();
    const absl::Cleanup restore = [&] { param_groups_.push_back(std::move(matrices)); };
    AdamW::step();
  }
  const optim::OptimizerParamGroup& group = param_groups_.back();
  const auto& options = static_cast<const optim::AdamWOptions&>(group.options());
  for (const at::Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    std::unique_ptr<optim::OptimizerParamState>& state = state_[parameter.unsafeGetTensorImpl()];
    if (state == nullptr) state = std::make_unique<optim::AdamWParamState>();
    StepMatrix(options, parameter, static_cast<optim::AdamWParamState*>(state.get()));
  }
  return {};
}

}  // namespace sluice::worker
