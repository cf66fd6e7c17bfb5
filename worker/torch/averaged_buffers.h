// SPDX-License-Identifier: Apache-2.0
// AveragedBuffers: a module's floating-point buffers (BatchNorm's running statistics) as rows of
// the tensor table. They are not trained, but averaged over the ranks at intervals.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/tensor_table.h"

namespace sluice::worker {

// Tensors and table share their indices, in the order of Module::named_buffers().
struct AveragedBuffers {
  std::vector<at::Tensor> tensors;
  protocol::TensorTable table;
};

// Finds the buffers to average. Excludes buffers of whole numbers (BatchNorm's
// num_batches_tracked), buffers without elements, and those named in `local`: every rank keeps its
// own values. A buffer with several names appears once, under its first name. Fails with
// INVALID_ARGUMENT, and names the buffer, if one has another floating type than float32, is not on
// `device`, is sparse, has gaps or overlaps in its storage, or has a value that is not finite, or
// if no buffer has a name in `local`.
absl::StatusOr<AveragedBuffers> FindAveragedBuffers(const torch::nn::Module& module,
                                                    const std::vector<std::string>& local,
                                                    at::Device device = at::kCPU);

}  // namespace sluice::worker
