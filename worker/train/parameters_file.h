// SPDX-License-Identifier: Apache-2.0
// ParametersFile: trained parameters on disk, in the format of PyTorch's torch.load (a dict from
// names to tensors) or in the safetensors format.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/torch/named_tensors.h"

namespace sluice::worker {

// Returns the file's content: a state_dict and a `note`, which PyTorch ignores.
std::string FormatParameters(const NamedTensors& tensors, absl::string_view note = {});
// Formats all parameters and buffers of `module`.
std::string FormatParameters(const torch::nn::Module& module);

// Returns the content of a file in the safetensors format (follow/safetensors.h). Fails with
// INVALID_ARGUMENT if the format has no name for a tensor's type.
absl::StatusOr<std::string> FormatSafetensors(const NamedTensors& tensors);

// Writes `bytes` to `path` and creates its folder if it does not exist. The file appears under its
// name only when it is complete and durable.
absl::Status SaveParameters(const std::string& bytes, const std::string& path);

// Returns the note of a file written by SaveParameters. Absent if the file does not exist, has no
// note, or has another format.
std::optional<std::string> ReadNote(const std::string& path);

}  // namespace sluice::worker
