#include "worker/torch/named_tensors.h"

#include <torch/types.h>

namespace sluice {

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

}  // namespace sluice
