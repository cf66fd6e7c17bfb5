// NamedTensors: what a module holds, by name, as state dicts list it.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace sluice::worker {

// Handles: they share the module's tensors.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Of the first parameter; the CPU if there is none.
at::Device DeviceOf(const torch::nn::Module& module);

// Parameters (tied ones under each name), then buffers.
NamedTensors TensorsOf(const torch::nn::Module& module);

}  // namespace sluice::worker
