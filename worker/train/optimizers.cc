#include "worker/train/optimizers.h"

#include <torch/torch.h>

#include <tuple>

#include "absl/strings/str_cat.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> MakeOptimizer(
    const OptimizerSpec& spec, const std::vector<at::Tensor>& parameters) {
  namespace optim = torch::optim;
  const std::tuple<double, double> betas(spec.beta1, spec.beta2);
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
    return std::make_unique<optim::AdamW>(
        parameters,
        optim::AdamWOptions(spec.lr).betas(betas).eps(spec.eps).weight_decay(spec.weight_decay));
  }
  if (spec.name == "rmsprop") {
    return std::make_unique<optim::RMSprop>(parameters, optim::RMSpropOptions(spec.lr)
                                                            .alpha(spec.alpha)
                                                            .eps(spec.eps)
                                                            .momentum(spec.momentum)
                                                            .weight_decay(spec.weight_decay));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer \"", spec.name, "\" is not known: use sgd, adam, adamw or rmsprop"));
}

void SetLearningRate(torch::optim::Optimizer* optimizer, double rate) {
  for (torch::optim::OptimizerParamGroup& group : optimizer->param_groups()) {
    group.options().set_lr(rate);
  }
}

void ClipGradients(const OptimizerSpec& spec, const std::vector<at::Tensor>& parameters) {
  if (spec.clip_value > 0) torch::nn::utils::clip_grad_value_(parameters, spec.clip_value);
  if (spec.clip_norm > 0) torch::nn::utils::clip_grad_norm_(parameters, spec.clip_norm);
}

}  // namespace sluice
