// SPDX-License-Identifier: Apache-2.0
// ResultApplier: writes results to a tensor, or adds them to it, on several threads. The values do
// not depend on the number of threads. Thread-safe.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/parallel.h"
#include "protocol/stage_times.h"
#include "worker/core/result_parts.h"

namespace sluice::worker {

class ResultApplier {
 public:
  // Starts `threads` - 1 threads; the caller's thread is the other one. Calls at the same time take
  // turns if there are several threads. Times of the threads go to `stages`, which may be null.
  ResultApplier(size_t threads, protocol::StageTimes* stages);

  // As WriteParts and AddParts.
  void Write(absl::Span<const ResultPart> parts, absl::Span<float> values);
  void Add(absl::Span<const ResultPart> parts, float scale, absl::Span<float> values);

 private:
  const size_t threads_;
  Mutex mutex_;
  Parallel parallel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::worker
