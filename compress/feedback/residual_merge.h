// SPDX-License-Identifier: Apache-2.0
// ResidualMerge: computes the initial states of a job's senders when their number changes. All new
// senders begin with the mean of the old compensators' states (residuals, memories and momenta).
// The mean over the new senders then equals the mean over the old ones, so no residual is lost or
// counted twice. Only one old sender at a time is in memory. Not thread-safe.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compress/compressor.h"

namespace sluice::compress {

class ResidualMerge {
 public:
  // Adds the next old sender, in the order of ranks. With `as_rest`, this sender also provides the
  // codecs, their thresholds and their own states; codecs whose receiver keeps a memory for each
  // sender start from empty states. Fails with INVALID_ARGUMENT if the sender's chunks or
  // compensators differ from those of earlier senders. Their codecs may differ.
  absl::Status Add(SavedCompressor saved, bool as_rest);
  // Returns the merged state. Call this last. Fails with FAILED_PRECONDITION if no sender was added
  // with `as_rest`.
  absl::StatusOr<SavedCompressor> Take();

 private:
  uint32_t senders_ = 0;
  std::vector<ChunkConfig> configs_;
  std::vector<SavedState> sums_;  // By chunk: the sums of the compensators' lists.
  SavedCompressor rest_;
  bool has_rest_ = false;
};

// Prepares a sender's state for receivers without state. Keeps residuals and thresholds. Takes the
// states of codecs and the memories of ef21 and diana from `initial`, the sender's state before its
// first frame, because a receiver has the same states and memories.
SavedCompressor ForNewReceivers(SavedCompressor saved, const SavedCompressor& initial);

// Adds the values of a valid frame that decodes alone to the chunk's residual. Does nothing if its
// compensator has none.
void AddToResidual(absl::Span<const std::byte> frame, SavedCompressor::Chunk* chunk);

}  // namespace sluice::compress
