// SPDX-License-Identifier: Apache-2.0
#include "worker/core/result_parts.h"

#include <algorithm>

#include "compress/frame.h"

namespace sluice::worker {

void WriteParts(absl::Span<const ResultPart> parts, absl::Span<float> values) {
  for (const ResultPart& part : parts) {
    const absl::Span<float> chunk = values.subspan(part.offset, part.count);
    if (part.from_zero) std::fill(chunk.begin(), chunk.end(), 0.0f);
    compress::AddValidFrames(part.frames, chunk);
  }
}

void AddParts(absl::Span<const ResultPart> parts, float scale, absl::Span<float> values) {
  std::vector<float> scratch;
  for (const ResultPart& part : parts) {
    compress::AddScaledValidFrames(part.frames, scale, &scratch,
                                   values.subspan(part.offset, part.count));
  }
}

void AppendSums(absl::Span<const ResultPart> parts, absl::Span<float> values,
                std::vector<compress::DeviceSum>* sums) {
  for (const ResultPart& part : parts) {
    sums->push_back({.sum = values.data() + part.offset,
                     .count = part.count,
                     .from_zero = part.from_zero,
                     .frames = part.frames});
  }
}

}  // namespace sluice::worker
