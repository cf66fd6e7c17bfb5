// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizers.h"

#include <torch/torch.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/momentum.h"
#include "worker/train/muon.h"

namespace sluice::worker {
namespace {

namespace optim = torch::optim;

// Used instead of a momentum of 0 if the job file has a momentum. With 0, LibTorch would not update
// the buffer, and a later momentum would continue from outdated values.
constexpr double kLeastMomentum = 1e-30;

template <typename Options>
double MomentumIn(const Options& options) {
  if constexpr (requires { options.betas(); }) {
    return std::get<0>(options.betas());
  } else {
    return options.momentum();
  }
}

template <typename Options>
void SetMomentumIn(double momentum, Options* options) {
  if constexpr (requires { options->betas(); }) {
    options->betas({momentum, std::get<1>(options->betas())});
  } else {
    options->momentum(momentum);
  }
}

// Returns the number of updates in a parameter's buffer. sgd keeps no count and needs none.
template <typename State>
uint64_t UpdatesIn(const State& state) {
  if constexpr (requires { state.step(); }) {
    return static_cast<uint64_t>(state.step());
  } else {
    return 1;
  }
}

template <typename State>
at::Tensor BufferIn(const State& state) {
  if constexpr (requires { state.exp_avg(); }) {
    return state.exp_avg();
  } else {
    return state.momentum_buffer();
  }
}

// Changes each parameter's buffer independently, so that the order of the hash map does not matter.
template <typename Options, typename State>
void ChangeMomentum(const job::OptimizerSpec& spec, double now, optim::Optimizer* optimizer) {
  for (optim::OptimizerParamGroup& group : optimizer->param_groups()) {
    auto& options = static_cast<Options&>(group.options());
    const double before = MomentumIn(options);
    if (before == now) continue;
    SetMomentumIn(now, &options);
    for (const at::Tensor& parameter : group.params()) {
      const auto kept = optimizer->state().find(parameter.unsafeGetTensorImpl());
      if (kept == optimizer->state().end()) continue;
      const auto& state = static_cast<const State&>(*kept->second);
      at::Tensor buffer = BufferIn(state);
      if (buffer.defined()) buffer.mul_(job::BufferFactor(spec, UpdatesIn(state), before, now));
    }
  }
}

std::unique_ptr<Muon> MakeMuon(const std::vector<at::Tensor>& parameters,
                               const std::vector<size_t>& matrices,
                               const optim::AdamWOptions& options) {
  std::vector<at::Tensor> chosen, others;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const bool matrix = std::find(matrices.begin(), matrices.end(), i) != matrices.end();
    (matrix ? chosen : others).push_back(parameters[i]);
  }
  return std::make_unique<Muon>(std::move(chosen), std::move(others), options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> MakeOptimizer(
    const job::OptimizerSpec& spec, const std::vector<at::Tensor>& parameters,
    const std::vector<size_t>& matrices) {
  const std::tuple<double, double> betas(spec.beta1, spec.beta2);
  const auto adamw =
      optim::AdamWOptions(spec.lr).betas(betas).eps(spec.eps).weight_decay(spec.weight_decay);
  if (spec.name == "sgd") {
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(spec.lr)
                                                        .momentum(spec.momentum)
                                                        .nesterov(spec.nesterov)
                                                        .weight_decay(spec.weight_decay));
  }
  if (spec.name == "adam") {
    return std::make_unique<optim::Adam>(
        parameters,
        optim::AdamOptions(spec.lr).betas(betas).eps(spec.eps).weight_decay(spec.weight_decay));
  }
  if (spec.name == "adamw") {
    return std::make_unique<optim::AdamW>(parameters, adamw);
  }
  if (spec.name == "muon") return MakeMuon(parameters, matrices, adamw);
  if (spec.name == "rmsprop") {
    return std::make_unique<optim::RMSprop>(parameters, optim::RMSpropOptions(spec.lr)
                                                            .alpha(spec.alpha)
                                                            .eps(spec.eps)
                                                            .momentum(spec.momentum)
                                                            .weight_decay(spec.weight_decay));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "optimizer \"", spec.name, "\" is not known: use sgd, adam, adamw, muon or rmsprop"));
}

void SetMomentum(const job::OptimizerSpec& spec, double momentum, optim::Optimizer* optimizer) {
  if (job::MomentumOf(spec) == 0) return;
  const at::NoGradGuard no_grad;
  momentum = std::max(momentum, kLeastMomentum);
  if (spec.name == "sgd") {
    ChangeMomentum<optim::SGDOptions, optim::SGDParamState>(spec, momentum, optimizer);
  } else if (spec.name == "adam") {
    ChangeMomentum<optim::AdamOptions, optim::AdamParamState>(spec, momentum, optimizer);
  } else if (spec.name == "adamw" || spec.name == "muon") {
    ChangeMomentum<optim::AdamWOptions, optim::AdamWParamState>(spec, momentum, optimizer);
  } else if (spec.name == "rmsprop") {
    ChangeMomentum<optim::RMSpropOptions, optim::RMSpropParamState>(spec, momentum, optimizer);
  }
}

void SetLearningRate(torch::optim::Optimizer* optimizer, double rate) {
  for (torch::optim::OptimizerParamGroup& group : optimizer->param_groups()) {
    group.options().set_lr(rate);
  }
}

void ClipGradients(const job::OptimizerSpec& spec, const std::vector<at::Tensor>& parameters) {
  if (spec.clip_value > 0) torch::nn::utils::clip_grad_value_(parameters, spec.clip_value);
  if (spec.clip_norm > 0) torch::nn::utils::clip_grad_norm_(parameters, spec.clip_norm);
}

}  // namespace sluice::worker
