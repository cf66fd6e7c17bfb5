// TrainableParameters: a module's trainable parameters as a tensor table and as spans over their
// storage, with an fp32 master for each that is of a shorter type.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protocol/tensor_table.h"
#include "worker/core/gradient_view.h"
#include "worker/torch/named_tensors.h"

namespace sluice::worker {

// All go together by index; the order is that of Module::named_parameters().
struct TrainableParameters {
  std::vector<at::Tensor> tensors;  // The module's.
  // What is trained: the tensor itself if it is float32, else a float32 one that lies as it does.
  std::vector<at::Tensor> masters;
  protocol::TensorTable table;
  at::Device device = at::kCPU;  // On which all of them are.
  // The module's parameters that are left out: frozen ones.
  NamedTensors frozen{};
};

// Frozen parameters are left out, tied ones come once (under their first name). Elements count in
// storage order, so that channels-last weights need no copy. Masters begin with what
// `master_values` has under the name, else with the parameter's own values. INVALID_ARGUMENT, with
// the name: nothing to train, another type than float32, bfloat16 and float16, on another device
// than the others, sparse, with gaps or overlaps in its storage, or a master's value of another
// shape.
absl::StatusOr<TrainableParameters> FindTrainableParameters(const torch::nn::Module& module,
                                                            const NamedTensors& master_values = {});

// The tensor's row of the table, as a parameter's.
protocol::TensorInfo DescribeTensor(const std::string& name, const at::Tensor& tensor);

// Whether the elements of `tensor`, of `type`, lie as the row of the table says, so that
// StorageSpan and StorageView are in its order.
bool LiesAs(const at::Tensor& tensor, const protocol::TensorInfo& info,
            at::ScalarType type = at::kFloat);

// The elements in storage order, where the tensor's device has them. The tensor must be dense
// float32 and outlive the span.
absl::Span<float> StorageSpan(const at::Tensor& tensor);
// The same of float32, bfloat16 or float16, each to be multiplied by `scale`.
GradientView StorageView(const at::Tensor& tensor, float scale);

// 32 bytes, over the tensors' bytes in order. They must be as StorageSpan takes them. Those of a
// GPU are copied from it, one after the other.
std::string Sha256(const std::vector<at::Tensor>& tensors);

}  // namespace sluice::worker
