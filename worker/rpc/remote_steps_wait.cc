// SPDX-License-Identifier: Apache-2.0
// The parts of RemoteSteps in which the training thread waits for results and applies them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/rpc/remote_steps.h"

namespace sluice::worker {
namespace {

absl::Status NotSubmitted(uint64_t step, const protocol::TensorInfo& tensor) {
  return absl::FailedPreconditionError(absl::StrCat(
      "Wait was called in step ", step, " before ", tensor.name, " was submitted: submit ",
      tensor.role == protocol::TensorRole::kBuffer ? "the buffers too if BuffersDue returns true"
                                                   : "zeros for a tensor that has no gradient"));
}

}  // namespace

absl::StatusOr<std::optional<StepResult>> RemoteSteps::WaitFor(absl::Duration limit) {
  std::optional<protocol::LinkReport> times;
  absl::StatusOr<std::optional<StepResult>> result = WaitForStep(limit, &times);
  if (times.has_value()) {
    for (const auto& stream : streams_) stream->EndStep(*times);
  }
  return result;
}

void RemoteSteps::CheckMayWait() {
  if (status_.ok() && !begun_) {
    (void)FailLocked(absl::FailedPreconditionError("Wait was called before any Submit or Skip"));
  }
  if (status_.ok()) {
    if (const auto missing = pipeline_.MissingTensor()) {
      (void)FailLocked(NotSubmitted(pipeline_.step(), table_[*missing]));
    }
  }
}

absl::StatusOr<std::vector<ReadyTensor>> RemoteSteps::WaitForTensors(absl::Duration limit) {
  const absl::Time started = clock_.Now();
  MutexLock lock(&mutex_);
  CheckMayWait();
  activity_.WaitBegan(started);
  awaits_tensors_ = true;
  std::vector<ReadyTensor> ready;
  for (;;) {
    if (status_.ok()) ready = pipeline_.TakeReady();
    // After a failure, the encoder thread may still be reading gradients.
    const bool over = status_.ok() ? !ready.empty() || !pipeline_.step_open() : !encoding_;
    const absl::Duration left = started + limit - clock_.Now();
    if (over || left <= absl::ZeroDuration()) break;
    step_changed_.WaitFor(&mutex_, std::min(left, absl::Hours(1)));
  }
  awaits_tensors_ = false;
  if (!status_.ok() && encoding_) return ready;  // The next call returns the error.
  const absl::Time ended = clock_.Now();
  const absl::Time began = activity_.WaitEnded(ended);
  if (!status_.ok()) return status_;
  if (pipeline_.step() > 0) times_.WaitedForTensors(began, ended, pipeline_.encodes());
  return ready;
}

absl::StatusOr<std::optional<StepResult>> RemoteSteps::WaitForStep(
    absl::Duration limit, std::optional<protocol::LinkReport>* times) {
  const absl::Time deadline = clock_.Now() + limit;
  MutexLock lock(&mutex_);
  CheckMayWait();
  // The encoder thread may still be reading gradients that the caller is about to change.
  activity_.WaitBegan(clock_.Now());
  while ((status_.ok() && pipeline_.step_open()) || encoding_) {
    if (clock_.Now() >= deadline) return std::nullopt;
    step_changed_.WaitFor(&mutex_, std::min(deadline - clock_.Now(), absl::Hours(1)));
  }
  const absl::Time ended = clock_.Now();
  const absl::Time began = activity_.WaitEnded(ended);
  if (!status_.ok()) return status_;
  begun_ = false;
  has_result_ = true;
  const StepResult result = pipeline_.Result();
  if (absl::Status noted = checkpoints_.StepEnded(result); !noted.ok()) {
    return FailLocked(std::move(noted));
  }
  activity_.Skipped(result.bundles_skipped_here);
  *times = times_.Waited(result.step, began, ended);
  return result;
}

absl::StatusOr<std::vector<ResultPart>> RemoteSteps::Results(uint32_t tensor, size_t elements,
                                                             ResultUse use) const {
  if (absl::Status may = MayApply(tensor, use); !may.ok()) return may;
  return pipeline_.Parts(tensor, elements, use);
}

// The lock is free while results are decoded, so that other results arrive and other bundles are
// encoded meanwhile. The parts are valid, because only this thread starts the next step.
absl::Status RemoteSteps::Apply(uint32_t tensor, absl::Span<float> values, ResultUse use,
                                float scale) {
  const absl::Time started = clock_.Now();
  absl::StatusOr<std::vector<ResultPart>> parts;
  {
    MutexLock lock(&mutex_);
    parts = Results(tensor, values.size(), use);
  }
  if (parts.ok() && use == ResultUse::kAddend) {
    applier_.Add(*parts, scale, values);
  } else if (parts.ok()) {
    applier_.Write(*parts, values);
  }
  MutexLock lock(&mutex_);
  return Applied(started, parts.status());
}

absl::Status RemoteSteps::ApplyOnGpu(absl::Span<const GpuTensor> tensors, void* ready) {
  const absl::Time started = clock_.Now();
  MutexLock lock(&mutex_);
  absl::Status status = options_.device != nullptr
                            ? absl::OkStatus()
                            : absl::FailedPreconditionError("this session has no GPU: use Apply");
  const ResultUse use = options_.shards_update ? ResultUse::kUpdate : ResultUse::kAddend;
  std::vector<compress::DeviceSum> sums;
  for (const GpuTensor& tensor : tensors) {
    if (!status.ok()) break;
    const auto parts = Results(tensor.tensor, tensor.size, use);
    if (parts.ok()) AppendSums(*parts, absl::MakeSpan(tensor.values, tensor.size), &sums);
    status = parts.status();
  }
  return Applied(started, status.ok() ? options_.device->Add(sums, ready) : std::move(status));
}

// Also rejects a mean used as an update, or the reverse, for a trained tensor. Step 0 has
// parameters, for which both work.
absl::Status RemoteSteps::MayApply(uint32_t tensor, ResultUse use) const {
  if (!status_.ok()) return status_;
  if (!has_result_ && !(begun_ && pipeline_.IsReady(tensor))) {
    return absl::FailedPreconditionError("Apply was called before Wait");
  }
  if (pipeline_.step() == 0 || tensor >= protocol::TrainedTensors(table_)) return absl::OkStatus();
  return CheckTaken(use == ResultUse::kUpdate, options_.shards_update);
}

absl::Status RemoteSteps::Applied(absl::Time started, absl::Status status) {
  const absl::Time ended = clock_.Now();
  activity_.Moved(ended);
  if (!status.ok()) return FailLocked(std::move(status));
  if (pipeline_.step() > 0) times_.Applied(started, ended);
  return absl::OkStatus();
}

}  // namespace sluice::worker
