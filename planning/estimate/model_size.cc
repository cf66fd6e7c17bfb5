// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/model_size.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace sluice::planning {

ModelSize SizeOfTable(std::string name, const protocol::TensorTable& table, uint32_t min_elements) {
  ModelSize size{.name = std::move(name)};
  for (const protocol::TensorInfo& tensor : table) {
    if (tensor.role != protocol::TensorRole::kTrained) continue;
    const auto elements = static_cast<double>(tensor.elements());
    size.elements += elements;
    size.tensors += 1;
    if (tensor.elements() < min_elements) size.small_elements += elements;
  }
  return size;
}

absl::StatusOr<ModelSize> SizeOfParameters(double parameters) {
  if (!(parameters >= 1 && parameters <= kParametersMax)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a model cannot have %g parameters; give a number from 1 to %g", parameters,
                        kParametersMax));
  }
  return ModelSize{.name = "a model",
                   .elements = parameters,
                   .tensors = std::max(1.0, std::round(parameters / kUsualTensorElements))};
}

}  // namespace sluice::planning
