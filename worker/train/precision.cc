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

absl::StatusOr<at::ScalarType> ComputingType(const std::string& precision) {
  if (precision == "fp32") return at::kFloat;
  if (precision == "bf16") return at::kBFloat16;
  if (precision == "fp16") return at::kHalf;
  return absl::InvalidArgumentError(
      absl::StrCat("precision \"", precision, "\" is not known: use fp32, bf16 or fp16"));
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
