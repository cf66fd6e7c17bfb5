// SPDX-License-Identifier: Apache-2.0
#include "worker/train/precision.h"

#include <torch/torch.h>

#include "absl/strings/str_cat.h"

namespace sluice::worker {
namespace {

bool IsBatchNorm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1d>() != nullptr ||
         module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

void Convert(const std::string& prefix, const torch::nn::Module& module, at::ScalarType type,
             NamedTensors* before) {
  for (const auto& entry : module.named_parameters(/*recurse=*/false)) {
    at::Tensor parameter = entry.value();
    // Skips a tied parameter that is already converted.
    if (IsBatchNorm(module) || parameter.scalar_type() != at::kFloat) continue;
    before->emplace_back(absl::StrCat(prefix, entry.key()), parameter.detach());
    parameter.set_data(parameter.detach().to(type));
  }
  for (const auto& child : module.named_children()) {
    Convert(absl::StrCat(prefix, child.key(), "."), *child.value(), type, before);
  }
}

}  // namespace

at::ScalarType ComputingType(job::Precision precision) {
  switch (precision) {
    case job::Precision::kFp32:
      return at::kFloat;
    case job::Precision::kBf16:
      return at::kBFloat16;
    case job::Precision::kFp16:
      return at::kHalf;
  }
  return at::kFloat;
}

NamedTensors ConvertParameters(Model* model, at::ScalarType type) {
  NamedTensors before;
  if (type != at::kFloat) Convert("", *model, type, &before);
  return before;
}

at::Tensor Scores(Model* model, const at::Tensor& inputs, at::ScalarType type) {
  const at::Tensor here = inputs.to(DeviceOf(*model));
  const at::Tensor taken = here.is_floating_point() ? here.to(type) : here;
  return model->forward(taken).to(at::kFloat);
}

}  // namespace sluice::worker
