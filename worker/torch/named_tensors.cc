// SPDX-License-Identifier: Apache-2.0
#include "worker/torch/named_tensors.h"

#include <torch/types.h>

namespace sluice::worker {

at::Device DeviceOf(const torch::nn::Module& module) {
  const std::vector<at::Tensor> parameters = module.parameters();
  return parameters.empty() ? at::Device(at::kCPU) : parameters.front().device();
}

NamedTensors TensorsOf(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& entry : module.named_parameters()) {
    tensors.emplace_back(entry.key(), entry.value());
  }
  for (const auto& entry : module.named_buffers()) {
    tensors.emplace_back(entry.key(), entry.value());
  }
  return tensors;
}

}  // namespace sluice::worker
