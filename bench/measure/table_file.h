// SPDX-License-Identifier: Apache-2.0
// Tensor tables as text, for benchmarks on models that ModelTable does not know. Each line has one
// tensor: its name and then its dimensions, outermost first, separated by spaces. A # starts a
// comment; empty lines are ignored. A name without dimensions is a scalar.
//
//   # An MLP.
//   fc1.weight 256 784
//   fc1.bias 256
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/tensor_table.h"

namespace sluice::bench {

// Fails with INVALID_ARGUMENT and names the line and the word. Passes on ValidateTensorTable's
// errors.
absl::StatusOr<protocol::TensorTable> ParseTensorTable(absl::string_view text);

// Fails with NOT_FOUND if the file cannot be opened. Errors begin with its path.
absl::StatusOr<protocol::TensorTable> ReadTensorTable(const std::string& path);

}  // namespace sluice::bench
