// AveragedBuffers: a module's floating-point buffers (BatchNorm's running statistics) as rows of
// the tensor table: not trained, averaged over the ranks now and then.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/tensor_table.h"

namespace sluice::worker {

// Tensors and table go together by index; the order is that of Module::named_buffers().
struct AveragedBuffers {
  std::vector<at::Tensor> tensors;
  protocol::TensorTable table;
};

// Buffers of whole numbers (BatchNorm's num_batches_tracked), without elements, or named in `local`
// are left out: every rank keeps its own. One that has several names comes once, under its first.
// INVALID_ARGUMENT, with the name: of another floating type than float32, not on `device`, sparse,
// with gaps or overlaps in its storage, or with a value that is not finite; a name in `local` that
// no buffer has.
absl::StatusOr<AveragedBuffers> FindAveragedBuffers(const torch::nn::Module& module,
                                                    const std::vector<std::string>& local,
                                                    at::Device device = at::kCPU);

}  // namespace sluice::worker
