// SPDX-License-Identifier: Apache-2.0
// NamedTensors: a module's tensors by name, as state dicts list them.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace sluice::worker {

// Handles that share the module's tensors.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Returns the device of the first parameter, or the CPU if there is none.
at::Device DeviceOf(const torch::nn::Module& module);

// Returns parameters (tied ones under each name), then buffers.
NamedTensors TensorsOf(const torch::nn::Module& module);

}  // namespace sluice::worker
