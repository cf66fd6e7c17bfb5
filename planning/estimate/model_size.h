// SPDX-License-Identifier: Apache-2.0
// ModelSize: what the cost of an exchange needs to know of a model's tensors.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "protocol/tensor_table.h"

namespace sluice::planning {

inline constexpr double kParametersMax = 1e12;
// A model that is known only by its number of parameters has tensors of this many elements.
inline constexpr double kUsualTensorElements = 1e6;

struct ModelSize {
  std::string name{};
  double elements = 0;        // Trained parameters.
  double tensors = 0;         // Trained tensors.
  double small_elements = 0;  // Elements of the tensors that codecs leave in fp16.
};

// Counts the trained tensors. Tensors with fewer than `min_elements` elements are small
// (protocol/compression_spec.h).
ModelSize SizeOfTable(std::string name, const protocol::TensorTable& table, uint32_t min_elements);

// Fails with INVALID_ARGUMENT unless `parameters` is from 1 to kParametersMax.
absl::StatusOr<ModelSize> SizeOfParameters(double parameters);

}  // namespace sluice::planning
