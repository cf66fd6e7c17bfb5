// The parts of JoinedSession in which the training thread waits for the end of a step.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/rpc/joined_session.h"

namespace sluice::worker {
namespace {

absl::Status NotSubmitted(uint64_t step, const protocol::TensorInfo& tensor) {
  return absl::FailedPreconditionError(absl::StrCat(
      "Wait was called in step ", step, " before ", tensor.name, " was submitted: submit ",
      tensor.role == protocol::TensorRole::kBuffer ? "the buffers too if BuffersDue returns true"
                                                   : "zeros for a tensor that has no gradient"));
}

}  // namespace

absl::StatusOr<std::optional<StepResult>> JoinedSession::WaitFor(absl::Duration limit) {
  std::optional<protocol::LinkReport> times;
  absl::StatusOr<std::optional<StepResult>> result = WaitForStep(limit, &times);
  if (times.has_value()) {
    for (const ShardLink& link : links_) link.stream->EndStep(*times);
  }
  return result;
}

absl::StatusOr<std::optional<StepResult>> JoinedSession::WaitForStep(
    absl::Duration limit, std::optional<protocol::LinkReport>* times) {
  const absl::Time deadline = clock_.Now() + limit;
  MutexLock lock(&mutex_);
  if (status_.ok() && !begun_) {
    (void)FailLocked(absl::FailedPreconditionError("Wait was called before any Submit or Skip"));
  }
  if (status_.ok()) {
    if (const auto missing = pipeline_.MissingTensor()) {
      (void)FailLocked(NotSubmitted(pipeline_.step(), table_[*missing]));
    }
  }
  // The encoder thread may still be reading gradients that the caller is about to change.
  if (!waiting_since_.has_value()) waiting_since_ = clock_.Now();
  while ((status_.ok() && pipeline_.step_open()) || encoding_) {
    if (clock_.Now() >= deadline) return std::nullopt;
    step_changed_.WaitFor(&mutex_, std::min(deadline - clock_.Now(), absl::Hours(1)));
  }
  const absl::Time started = *std::exchange(waiting_since_, std::nullopt);
  last_progress_ = clock_.Now();
  if (!status_.ok()) return status_;
  begun_ = false;
  has_result_ = true;
  const StepResult result = pipeline_.Result();
  if (result.checkpoint_due && writer_ == nullptr) {
    return FailLocked(absl::FailedPreconditionError(
        "the servers take checkpoints, but this worker's job file has no checkpoint.dir: give all "
        "servers and workers of a job the same one"));
  }
  save_due_ = result.checkpoint_due;
  skipped_bundles_ += result.bundles_skipped_here;
  if (result.step > 0) {
    ++counters_.steps;
    counters_.exposed_seconds += absl::ToDoubleSeconds(last_progress_ - started);
    const StepSeconds before = step_clock_.seconds();
    step_clock_.Waited(started, last_progress_);
    const StepSeconds& now = step_clock_.seconds();
    *times = protocol::LinkReport{
        .step = result.step,
        .compute_s = now.compute - before.compute,
        .encode_s = now.encode_hidden_too - before.encode_hidden_too,
        .apply_s = now.decode - before.decode,
        .exposed_s = now.encode - before.encode + now.exchange - before.exchange};
  }
  if (options_.trace != nullptr) TraceStep(started, last_progress_);
  return result;
}

}  // namespace sluice::worker
