// SPDX-License-Identifier: Apache-2.0
#include "worker/torch/streamed_changes.h"

#include <torch/types.h>

#include <utility>

namespace sluice::worker {
namespace {

// Returns a view of the part's elements.
at::Tensor View(const at::Tensor& tensor, const protocol::TensorPart& part) {
  return tensor.detach().as_strided({static_cast<int64_t>(part.count)}, {1},
                                    tensor.storage_offset() + static_cast<int64_t>(part.offset));
}

}  // namespace

StreamedChanges::StreamedChanges(std::vector<at::Tensor> parameters, double merge_alpha)
    : parameters_(std::move(parameters)), merge_alpha_(merge_alpha), changes_(parameters_.size()) {}

absl::Status StreamedChanges::Submit(const std::vector<at::Tensor>& published, TensorPort* port) {
  const at::NoGradGuard no_grad;
  // Last tensor first, as in backward. A tensor's parts are next to each other.
  for (size_t i = parts_.size(); i-- > 0;) {
    const protocol::TensorPart& part = parts_[i];
    at::Tensor& change = changes_[part.tensor];
    if (!change.defined()) {
      const at::Tensor& like = parameters_[part.tensor];
      change = at::empty_strided(like.sizes(), like.strides(), like.options().requires_grad(false));
    }
    at::Tensor to = View(change, part);
    at::sub_out(to, View(published[part.tensor], part), View(parameters_[part.tensor], part));
    if (i > 0 && parts_[i - 1].tensor == part.tensor) continue;
    absl::Status status = port->Submit(part.tensor, change, 1);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

const at::Tensor& StreamedChanges::Copy(const at::Tensor& buffer) {
  return copies_.emplace_back(buffer.detach().clone());
}

void StreamedChanges::Adopt(const std::vector<at::Tensor>& published, bool discard) {
  const at::NoGradGuard no_grad;
  for (const protocol::TensorPart& part : parts_) {
    const at::Tensor own = View(parameters_[part.tensor], part);
    const at::Tensor given = View(published[part.tensor], part);
    if (discard || merge_alpha_ == 0) {
      own.copy_(given);
    } else {
      own.mul_(merge_alpha_).add_(given, 1 - merge_alpha_);
    }
  }
  parts_.clear();
  copies_.clear();
}

}  // namespace sluice::worker
