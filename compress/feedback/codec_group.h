// SPDX-License-Identifier: Apache-2.0
// CodecGroup: chunks of one sender that have an equal spec and, with scope=tensor, belong to one
// tensor. They share a codec and, if the codec uses one, a threshold, which is adjusted to the
// density after each step.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/chunk_config.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"
#include "compress/coding/magnitude_histogram.h"
#include "compress/saved_state.h"

namespace sluice::compress {

// What a group's chunks have encoded in the current step. Sums do not depend on the order.
struct GroupCounts {
  void Add(const GroupCounts& other);
  void Clear();

  MagnitudeHistogram magnitudes;
  uint64_t kept = 0;      // Number of elements kept.
  uint64_t elements = 0;  // Number of elements encoded.
};

struct CodecGroup {
  explicit CodecGroup(const ChunkConfig& chunk);

  bool Has(const ChunkConfig& chunk) const;
  // Returns the share of elements that the codec should let through in `step`. The share decreases
  // during a warm-up.
  double DensityAt(uint64_t step) const;
  // Computes the next step's threshold from the counts of `step`.
  void EndStep(uint64_t step);

  SavedState Save() const;
  // `saved` has passed CheckSavedGroups.
  void Restore(const SavedState& saved);

  CodecSpec spec;
  uint32_t tensor = 0;
  std::unique_ptr<Codec> codec;
  bool observes = false;
  float threshold = 0;   // 0 if each chunk takes its own threshold.
  GroupCounts counts;    // Counts of the current step.
  uint64_t size = 0;     // Number of elements of all chunks in the group.
  float correction = 1;  // Factor that multiplies the requested density.
};

// Returns OK if RestoreGroups can accept the states. The error message contains the index of the
// first state that it cannot accept.
absl::Status CheckSavedGroups(absl::Span<const SavedState> saved);
// Restores each group from its state. Without states, it resets all groups to their initial values.
void RestoreGroups(absl::Span<const SavedState> saved, absl::Span<CodecGroup> groups);

}  // namespace sluice::compress
