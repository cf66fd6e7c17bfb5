// ParametersFile: trained parameters on disk, as PyTorch's torch.load reads them: a dict of names
// to tensors.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/torch/named_tensors.h"

namespace sluice::worker {

// The file's content: a state_dict, and beside it a `note`, which PyTorch passes over.
std::string FormatParameters(const NamedTensors& tensors, absl::string_view note = {});
// Of all parameters and buffers of `module`.
std::string FormatParameters(const torch::nn::Module& module);

// Writes `bytes` to `path`, making its folder if need be. The file appears under its name only when
// it is complete and safe from a power cut.
absl::Status SaveParameters(const std::string& bytes, const std::string& path);

// The note of a file that was saved so; none: it is not there, has none, or is no such file.
std::optional<std::string> ReadNote(const std::string& path);

}  // namespace sluice::worker
