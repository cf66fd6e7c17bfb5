// SPDX-License-Identifier: Apache-2.0
// The parts of DataParallel that wait for the results of a step and write them.
#include <torch/types.h>

#include <utility>

#include "worker/torch/data_parallel.h"

namespace sluice::worker {

absl::Status DataParallel::ApplyBuffers() {
  for (size_t i = 0; i < buffers_.tensors.size(); ++i) {
    absl::Status status = port_.Change(
        IndexOfBuffer(i), buffers_.tensors[i],
        [&](absl::Span<float> values) { return session_->Apply(IndexOfBuffer(i), values); });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> DataParallel::LayMean(size_t i) {
  // The optimizer works on masters and does not clear the gradients of 16-bit parameters.
  const at::Tensor own = parameters_.tensors[i].grad();
  if (HasMaster(i) && own.defined()) own.zero_();
  return LayGradient(parameters_.masters[i], parameters_.table[i]);
}

absl::Status DataParallel::WriteMean(uint32_t tensor) {
  const absl::StatusOr<at::Tensor> mean = LayMean(tensor);
  if (!mean.ok()) return mean.status();
  return port_.Change(tensor, *mean,
                      [&](absl::Span<float> values) { return session_->Apply(tensor, values); });
}

absl::Status DataParallel::WriteMeansAsTheyArrive(std::vector<bool>* written) {
  for (;;) {
    const absl::StatusOr<std::vector<ReadyTensor>> ready =
        session_->WaitForTensors(absl::InfiniteDuration());
    if (!ready.ok()) return ready.status();
    if (ready->empty()) return absl::OkStatus();
    for (const ReadyTensor& mean : *ready) {
      if (mean.tensor >= written->size()) continue;  // A buffer; ApplyBuffers writes it.
      absl::Status status = WriteMean(mean.tensor);
      if (!status.ok()) return status;
      (*written)[mean.tensor] = true;
    }
  }
}

absl::Status DataParallel::WriteMeans(const std::vector<bool>& written) {
  std::vector<at::Tensor> on_gpu;  // All of them, which go there together.
  for (size_t i = 0; i < parameters_.masters.size(); ++i) {
    if (parameters_.device.is_cpu()) {
      absl::Status status = written[i] ? absl::OkStatus() : WriteMean(static_cast<uint32_t>(i));
      if (!status.ok()) return status;
      continue;
    }
    absl::StatusOr<at::Tensor> mean = LayMean(i);
    if (!mean.ok()) return mean.status();
    on_gpu.push_back(*std::move(mean));
  }
  return port_.Apply(on_gpu);
}

absl::Status DataParallel::ApplyUpdates() {
  // No optimizer runs here, so nothing else clears the gradients.
  for (const at::Tensor& parameter : parameters_.tensors) {
    if (parameter.grad().defined()) parameter.grad().zero_();
  }
  if (!options_.sends_weights) return port_.ApplyUpdate(parameters_.masters);
  absl::Status status = port_.ApplyUpdate(published_);
  if (!status.ok()) return status;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < published_.size(); ++i) parameters_.masters[i].copy_(published_[i]);
  return status;
}

absl::StatusOr<StepResult> DataParallel::EndExchange() {
  return TorchStatus("while adopting changes of parameters", [&]() -> absl::StatusOr<StepResult> {
    absl::StatusOr<StepResult> result = session_->Wait();
    port_.EndStep();
    if (!result.ok()) return result;
    absl::Status status = port_.ApplyUpdate(published_);
    if (!status.ok()) return status;
    // Values that are not finite would stay so in a weighted mean.
    changes_->Adopt(published_, /*discard=*/result->bundles_skipped_here > 0);
    if (result->buffers_averaged) status = ApplyBuffers();
    if (!status.ok()) return status;
    return result;
  });
}

absl::StatusOr<StepResult> DataParallel::WaitAndApply() {
  std::vector<bool> written(parameters_.masters.size());
  if (parameters_.device.is_cpu() && !options_.shards_update) {
    absl::Status status = WriteMeansAsTheyArrive(&written);
    if (!status.ok()) return status;
  }
  absl::StatusOr<StepResult> result = session_->Wait();
  port_.EndStep();
  if (!result.ok()) return result;
  MutexLock lock(&mutex_);
  absl::Status status = options_.shards_update ? ApplyUpdates() : WriteMeans(written);
  if (!status.ok()) return status;
  if (!options_.shards_update) {
    for (const uint32_t tensor : result->without_mean) {
      parameters_.masters[tensor].mutable_grad() = at::Tensor();
    }
  }
  BeginStepLocked();
  if (result->buffers_averaged) {
    status = ApplyBuffers();
    if (!status.ok()) return status;
  }
  return result;
}

}  // namespace sluice::worker
