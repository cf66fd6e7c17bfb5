// SPDX-License-Identifier: Apache-2.0
// TensorPort: moves a model's tensors into and out of a Session. Tensors on the CPU are used in
// place. Tensors on a GPU are used in place if the session supports it, otherwise through copies in
// host memory that are allocated once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/core/session.h"

namespace sluice::worker {

// Used from one thread at a time. Exceptions of LibTorch propagate to the caller.
class TensorPort {
 public:
  // `tensors` is the number of tensors, all on one device.
  TensorPort(Session* session, size_t tensors);

  // Submits a tensor. It must be dense, have the layout of the job's table and stay unchanged until
  // the step is done.
  absl::Status Submit(uint32_t tensor, const at::Tensor& values, float scale);
  // Like Submit, but always submits a copy in host memory.
  absl::Status SubmitFromHost(uint32_t tensor, const at::Tensor& values);
  // The next two methods call Session::Apply and Session::ApplyUpdate for tensors 0, 1 and so on.
  absl::Status Apply(absl::Span<const at::Tensor> means);
  absl::Status ApplyUpdate(absl::Span<const at::Tensor> parameters);
  // Passes the tensor's values in host memory to `change` and writes its result back to the tensor.
  absl::Status Change(uint32_t tensor, const at::Tensor& values,
                      absl::FunctionRef<absl::Status(absl::Span<float>)> change);
  // Ends the step: the submitted tensors may change again.
  void EndStep();

 private:
  // Copies `values` to the host.
  static const at::Tensor& CopyToHost(const at::Tensor& values, at::Tensor* copy);
  absl::Status ApplyOnGpu(absl::Span<const at::Tensor> tensors);

  Session* const session_;
  // By tensor, in host memory; undefined until first use.
  std::vector<at::Tensor> submitted_, changed_;
  // GPU events after which the tensors submitted in this step have their final values.
  std::vector<c10::Event> events_;
};

// Returns the index of a tensor with a value that is not finite, or nullopt if all values are
// finite. All tensors must be on one device. On a GPU it waits once.
std::optional<size_t> FindNonFinite(absl::Span<const at::Tensor> tensors);

}  // namespace sluice::worker
