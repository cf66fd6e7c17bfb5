// Tensor tables as text, for benchmarks on models that ModelTable does not know: a tensor on each
// line, its name and then its dimensions, outermost first, with spaces between them. What follows a
// # is a comment; empty lines are skipped. A name alone is a scalar.
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

// INVALID_ARGUMENT names the line and the word, or is ValidateTensorTable's.
absl::StatusOr<protocol::TensorTable> ParseTensorTable(absl::string_view text);

// NOT_FOUND if the file cannot be opened; errors begin with its path.
absl::StatusOr<protocol::TensorTable> ReadTensorTable(const std::string& path);

}  // namespace sluice::bench
