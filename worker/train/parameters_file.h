// ParametersFile: trained parameters on disk, as PyTorch's torch.load reads them: a dict of names
// to tensors.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/torch/named_tensors.h"

namespace sluice {

// The file's content: a state_dict.
std::string FormatParameters(const NamedTensors& tensors);
// Of all parameters and buffers of `module`.
std::string FormatParameters(const torch::nn::Module& module);

// Writes `bytes` to `path`, making its folder if need be. The file appears under its name only when
// complete.
absl::Status SaveParameters(const std::string& bytes, const std::string& path);

}  // namespace sluice
