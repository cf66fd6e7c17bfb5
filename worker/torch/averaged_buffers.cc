// SPDX-License-Identifier: Apache-2.0
#include "worker/torch/averaged_buffers.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "worker/torch/trainable_parameters.h"

namespace sluice::worker {
namespace {

// Returns the reason why the buffer cannot be averaged, or an empty string.
std::string Problem(const at::Tensor& tensor, at::Device device) {
  if (tensor.layout() != at::kStrided) return "is sparse";
  if (tensor.device() != device) {
    return absl::StrCat("is on ", tensor.device().str(), " and not on ", device.str());
  }
  if (tensor.scalar_type() != at::kFloat) {
    return absl::StrCat("is of type ", c10::toString(tensor.scalar_type()));
  }
  if (!tensor.is_non_overlapping_and_dense()) return "has gaps or overlaps in its storage";
  const at::Tensor here = tensor.detach().to(at::kCPU);
  const absl::Span<const float> values = StorageSpan(here);
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  // A non-finite value would also keep the other buffers in its bundle from being averaged.
  if (bad != values.end()) return absl::StrCat("is not finite (", *bad, ")");
  return "";
}

}  // namespace

absl::StatusOr<AveragedBuffers> FindAveragedBuffers(const torch::nn::Module& module,
                                                    const std::vector<std::string>& local,
                                                    at::Device device) {
  AveragedBuffers found;
  std::set<std::string> left_out(local.begin(), local.end());
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& entry : module.named_buffers()) {
    const at::Tensor& tensor = entry.value();
    if (left_out.erase(entry.key()) > 0 || !tensor.defined() || tensor.numel() == 0) continue;
    if (at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) continue;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    const std::string problem = Problem(tensor, device);
    if (!problem.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "buffer ", entry.key(), " ", problem,
          ": only finite, dense float32 buffers on the parameters' device can be averaged over the "
          "workers; convert it, or name it in DataParallelOptions::local_buffers"));
    }
    protocol::TensorInfo info = DescribeTensor(entry.key(), tensor);
    info.role = protocol::TensorRole::kBuffer;
    found.tensors.push_back(tensor);
    found.table.push_back(std::move(info));
  }
  if (left_out.empty()) return found;
  return absl::InvalidArgumentError(absl::StrCat("DataParallelOptions::local_buffers names ",
                                                 *left_out.begin(),
                                                 ", but the module has no such buffer"));
}

}  // namespace sluice::worker
