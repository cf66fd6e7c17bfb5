// SPDX-License-Identifier: Apache-2.0
// TrainableParameters: a module's trainable parameters as a tensor table and as spans over their
// storage, with an fp32 master for each 16-bit parameter.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protocol/tensor_table.h"
#include "worker/core/gradient_view.h"
#include "worker/torch/named_tensors.h"

namespace sluice::worker {

// All vectors share their indices, in the order of Module::named_parameters().
struct TrainableParameters {
  std::vector<at::Tensor> tensors;  // The module's tensors.
  // The trained tensors: the module's own tensor if it is float32, otherwise a float32 tensor with
  // the same layout.
  std::vector<at::Tensor> masters;
  protocol::TensorTable table;
  at::Device device = at::kCPU;  // Device of all tensors.
  // The module's frozen parameters, which the fields above exclude.
  NamedTensors frozen{};
};

// Finds the trainable parameters. Excludes frozen ones and lists tied ones once (under their first
// name). Elements are in storage order, so that channels-last weights need no copy. A master starts
// with the value in `master_values` under its name, otherwise with the parameter's own values.
// Fails with INVALID_ARGUMENT, and names the parameter, if there is nothing to train, or a
// parameter has another type than float32, bfloat16 and float16, is on another device than the
// others, is sparse, has gaps or overlaps in its storage, or its master's value has another shape.
absl::StatusOr<TrainableParameters> FindTrainableParameters(const torch::nn::Module& module,
                                                            const NamedTensors& master_values = {});

// Returns the number of elements of the parameters that FindTrainableParameters finds.
uint64_t CountTrainableElements(const torch::nn::Module& module);

// Returns the table's row for a tensor, as FindTrainableParameters makes the row of a parameter.
protocol::TensorInfo DescribeTensor(const std::string& name, const at::Tensor& tensor);

// Returns true if `tensor` has the type `type` and the layout in the table's row, so that
// StorageSpan and StorageView use the row's order.
bool LiesAs(const at::Tensor& tensor, const protocol::TensorInfo& info,
            at::ScalarType type = at::kFloat);

// Gives `parameter` a .grad with the table's layout. Keeps existing values; an undefined .grad
// becomes zeros. Fails with INVALID_ARGUMENT if the gradient is sparse.
absl::StatusOr<at::Tensor> LayGradient(const at::Tensor& parameter,
                                       const protocol::TensorInfo& info);

// Returns the elements in storage order, in the memory of the tensor's device. The tensor must be
// dense float32 and outlive the span.
absl::Span<float> StorageSpan(const at::Tensor& tensor);
// Like StorageSpan, for float32, bfloat16 or float16. The view scales each element by `scale`.
GradientView StorageView(const at::Tensor& tensor, float scale);

// Returns the hash (32 bytes) of the tensors' bytes in order. StorageSpan's requirements apply.
// Tensors on a GPU are copied to the host one at a time.
std::string Sha256(const std::vector<at::Tensor>& tensors);

}  // namespace sluice::worker
