// TensorPort: a model's tensors as a Session takes and gives them. Those on the CPU go as they lie.
// Those on a GPU go as they lie too where the session takes that; else by way of copies in the
// host's memory, which are made once.
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

// Used from one thread at a time. What LibTorch throws leaves it.
class TensorPort {
 public:
  // For so many tensors, all on one device.
  TensorPort(Session* session, size_t tensors);

  // Tensors are dense, lie as the job's table says and stay as they are until the step is done.
  absl::Status Submit(uint32_t tensor, const at::Tensor& values, float scale);
  // As Submit, of a copy in the host's memory wherever the tensor is.
  absl::Status SubmitFromHost(uint32_t tensor, const at::Tensor& values);
  // Session::Apply and Session::ApplyUpdate of tensors 0, 1 and so on.
  absl::Status Apply(absl::Span<const at::Tensor> means);
  absl::Status ApplyUpdate(absl::Span<const at::Tensor> parameters);
  // `change` gets the tensor's values in the host's memory, and what it makes of them is put in
  // their place.
  absl::Status Change(uint32_t tensor, const at::Tensor& values,
                      absl::FunctionRef<absl::Status(absl::Span<float>)> change);
  // The step is done: nothing of it is read any more.
  void EndStep();

 private:
  // Copies `values` to the host.
  static const at::Tensor& CopyToHost(const at::Tensor& values, at::Tensor* copy);
  absl::Status ApplyOnGpu(absl::Span<const at::Tensor> tensors);

  Session* const session_;
  // By tensor, in the host's memory; undefined until they are needed.
  std::vector<at::Tensor> submitted_, changed_;
  // After which what was submitted in this step is what it should be.
  std::vector<c10::Event> events_;
};

// Whether all values of all tensors, which are on one device, are finite. On a GPU it waits once.
// The index of a tensor that has one that is not; none: all are.
std::optional<size_t> FindNonFinite(absl::Span<const at::Tensor> tensors);

}  // namespace sluice::worker
