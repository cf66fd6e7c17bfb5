// SPDX-License-Identifier: Apache-2.0
// ResultPart: the part of a tensor that one result of a step has.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "compress/device_encoder.h"

namespace sluice::worker {

enum class ResultUse {
  kMean,    // Replaces values.
  kAddend,  // A mean, which is added to values.
  kUpdate,  // Brings parameters up to the published version.
};

// One chunk. Owned by the Pipeline; valid until its next step starts.
struct ResultPart {
  size_t offset = 0;  // Offset of the chunk in the tensor, in elements.
  size_t count = 0;
  bool from_zero = false;              // The frames replace the values, and are not added to them.
  absl::Span<const std::byte> frames;  // One or two, or none if n = 0.
};

// Writes the parts of a mean, or adds those of an update. Elements of no part stay unchanged.
void WriteParts(absl::Span<const ResultPart> parts, absl::Span<float> values);
// Adds: values[i] += scale * mean[i]. Touches only the elements that a sparse result names.
void AddParts(absl::Span<const ResultPart> parts, float scale, absl::Span<float> values);
// Appends to `*sums` the sums that WriteParts would compute, for values on a device.
void AppendSums(absl::Span<const ResultPart> parts, absl::Span<float> values,
                std::vector<compress::DeviceSum>* sums);

}  // namespace sluice::worker
