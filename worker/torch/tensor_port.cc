// SPDX-License-Identifier: Apache-2.0
#include "worker/torch/tensor_port.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include "worker/torch/trainable_parameters.h"

namespace sluice::worker {
namespace {

// Records an event on this thread's current stream of the tensor's device.
c10::Event Recorded(const at::Tensor& tensor) {
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  c10::Event event(tensor.device().type());
  event.record(guard.getStream(tensor.device()));
  return event;
}

}  // namespace

TensorPort::TensorPort(Session* session, size_t tensors)
    : session_(session), submitted_(tensors), changed_(tensors) {}

const at::Tensor& TensorPort::CopyToHost(const at::Tensor& values, at::Tensor* copy) {
  const at::NoGradGuard no_grad;
  if (!copy->defined()) {
    *copy = at::empty_strided(values.sizes(), values.strides(),
                              at::TensorOptions().dtype(values.scalar_type()));
  }
  return copy->copy_(values);
}

absl::Status TensorPort::Submit(uint32_t tensor, const at::Tensor& values, float scale) {
  if (values.is_cpu()) return session_->Submit(tensor, StorageView(values, scale));
  if (!session_->AcceptsGpuViews()) {
    const at::Tensor& copy = CopyToHost(values, &submitted_[tensor]);
    return session_->Submit(tensor, StorageView(copy, scale));
  }
  events_.push_back(Recorded(values));
  GradientView view = StorageView(values, scale);
  view.on_gpu = true;
  view.ready = events_.back().eventId();
  return session_->Submit(tensor, view);
}

absl::Status TensorPort::SubmitFromHost(uint32_t tensor, const at::Tensor& values) {
  if (values.is_cpu()) return session_->Submit(tensor, StorageSpan(values));
  return session_->Submit(tensor, StorageSpan(CopyToHost(values, &submitted_[tensor])));
}

absl::Status TensorPort::Change(uint32_t tensor, const at::Tensor& values,
                                absl::FunctionRef<absl::Status(absl::Span<float>)> change) {
  if (values.is_cpu()) return change(StorageSpan(values));
  const at::Tensor& copy = CopyToHost(values, &changed_[tensor]);
  absl::Status status = change(StorageSpan(copy));
  const at::NoGradGuard no_grad;
  if (status.ok()) values.detach().copy_(copy);
  return status;
}

absl::Status TensorPort::ApplyOnGpu(absl::Span<const at::Tensor> tensors) {
  std::vector<GpuTensor> there;
  for (const at::Tensor& tensor : tensors) {
    const absl::Span<float> values = StorageSpan(tensor);
    there.push_back({static_cast<uint32_t>(there.size()), values.data(), values.size()});
  }
  const c10::Event ready = Recorded(tensors.front());
  return session_->ApplyOnGpu(there, ready.eventId());
}

absl::Status TensorPort::Apply(absl::Span<const at::Tensor> means) {
  if (means.empty()) return absl::OkStatus();
  if (!means.front().is_cpu() && session_->AcceptsGpuViews()) return ApplyOnGpu(means);
  absl::Status status;
  for (uint32_t i = 0; i < means.size() && status.ok(); ++i) {
    status =
        Change(i, means[i], [&](absl::Span<float> values) { return session_->Apply(i, values); });
  }
  return status;
}

absl::Status TensorPort::ApplyUpdate(absl::Span<const at::Tensor> parameters) {
  if (parameters.empty()) return absl::OkStatus();
  if (!parameters.front().is_cpu() && session_->AcceptsGpuViews()) return ApplyOnGpu(parameters);
  absl::Status status;
  for (uint32_t i = 0; i < parameters.size() && status.ok(); ++i) {
    status = Change(i, parameters[i],
                    [&](absl::Span<float> values) { return session_->ApplyUpdate(i, values); });
  }
  return status;
}

void TensorPort::EndStep() { events_.clear(); }

std::optional<size_t> FindNonFinite(absl::Span<const at::Tensor> tensors) {
  if (tensors.empty()) return std::nullopt;
  if (tensors.front().is_cpu()) {
    for (size_t i = tensors.size(); i-- > 0;) {
      if (!IsFinite(StorageView(tensors[i], 1))) return i;
    }
    return std::nullopt;
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> flags;
  for (const at::Tensor& tensor : tensors) flags.push_back(tensor.isfinite().all());
  const at::Tensor all = at::stack(flags).to(at::kCPU);
  const bool* const finite = all.const_data_ptr<bool>();
  for (size_t i = tensors.size(); i-- > 0;) {
    if (!finite[i]) return i;
  }
  return std::nullopt;
}

}  // namespace sluice::worker
