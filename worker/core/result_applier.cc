// SPDX-License-Identifier: Apache-2.0
#include "worker/core/result_applier.h"

namespace sluice::worker {

ResultApplier::ResultApplier(size_t threads, protocol::StageTimes* stages)
    : threads_(threads), parallel_(threads, [stages](absl::FunctionRef<void()> work) {
        const protocol::StageSpan applying(stages, protocol::Stage::kApply);
        work();
      }) {}

void ResultApplier::Write(absl::Span<const ResultPart> parts, absl::Span<float> values) {
  if (threads_ == 1 || parts.size() == 1) return WriteParts(parts, values);
  MutexLock lock(&mutex_);
  parallel_.For(parts.size(),
                [&](size_t part, size_t) { WriteParts(parts.subspan(part, 1), values); });
}

void ResultApplier::Add(absl::Span<const ResultPart> parts, float scale, absl::Span<float> values) {
  if (threads_ == 1 || parts.size() == 1) return AddParts(parts, scale, values);
  MutexLock lock(&mutex_);
  parallel_.For(parts.size(),
                [&](size_t part, size_t) { AddParts(parts.subspan(part, 1), scale, values); });
}

}  // namespace sluice::worker
