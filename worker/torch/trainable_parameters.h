// TrainableParameters: a module's trainable parameters as a tensor table and as spans over their
// storage.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/tensor_table.h"

namespace sluice {

// Tensors and table go together by index; the order is that of Module::named_parameters().
struct TrainableParameters {
  std::vector<at::Tensor> tensors;
  TensorTable table;
};

// Frozen parameters are left out, tied ones come once (under their first name). Elements count in
// storage order, so that channels-last weights need no copy. INVALID_ARGUMENT, with the name:
// nothing to train, another type than float32, not on the CPU, sparse, or with gaps or overlaps in
// its storage.
absl::StatusOr<TrainableParameters> FindTrainableParameters(const torch::nn::Module& module);

// The tensor's row of the table, as a parameter's.
TensorInfo DescribeTensor(const std::string& name, const at::Tensor& tensor);

// Whether the floats of `tensor` lie as the row of the table says, so that StorageSpan is in its
// order.
bool LiesAs(const at::Tensor& tensor, const TensorInfo& info);

// The elements in storage order. The tensor must be dense float32 on the CPU and outlive the span.
absl::Span<float> StorageSpan(const at::Tensor& tensor);

// 32 bytes, over the tensors' bytes in order. They must be as StorageSpan takes them.
std::string Sha256(const std::vector<at::Tensor>& tensors);

}  // namespace sluice
