// SPDX-License-Identifier: Apache-2.0
// Writes a pipeline's results into values, as a session does.
#pragma once

#include "worker/core/pipeline.h"

namespace sluice::worker {

// Writes the result of a tensor that is ready.
inline absl::Status ReadResult(const Pipeline& pipeline, uint32_t tensor, ResultUse use,
                               absl::Span<float> values) {
  const auto parts = pipeline.Parts(tensor, values.size(), use);
  if (parts.ok()) WriteParts(*parts, values);
  return parts.status();
}

inline absl::Status ReadMean(const Pipeline& pipeline, uint32_t tensor, absl::Span<float> mean) {
  return ReadResult(pipeline, tensor, ResultUse::kMean, mean);
}

}  // namespace sluice::worker
