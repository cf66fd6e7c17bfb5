// SPDX-License-Identifier: Apache-2.0
// ShardParameters: the parameters of a shard that runs the job's updates. They exist in two
// versions: the current parameters, and the published ones, which workers have. A publication of a
// chunk encodes the difference between the two, so the error of one encoding becomes part of the
// next publication. No other residual is needed. A worker that has applied every publication holds
// `published` bit for bit. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/saved_state.h"
#include "server/shard/update_rule.h"

namespace sluice::server {

// Threads may call Update, and Owed with scratch memory, at the same time for different chunks.
class ShardParameters {
 public:
  // `counts` holds the number of elements of each chunk, which is 0 for a chunk of buffers.
  ShardParameters(UpdateRule rule, absl::Span<const uint32_t> counts);

  // Returns the number of bytes of memory per element.
  static size_t BytesPerElement(const UpdateRule& rule);

  // Sets the momentum for later updates of all chunks. Without a value, restores the momentum of
  // the rule. The next update of each chunk first rescales the chunk's slots, so that the change of
  // momentum does not enlarge that update.
  void SetMomentum(std::optional<float> momentum);

  // Sets the initial parameters. Workers start with the same values.
  void Set(size_t chunk, absl::Span<const float> values);
  // Sets the initial parameters by decoding valid frames, as workers do.
  void SetFrom(size_t chunk, absl::Span<const std::byte> frames);
  // Applies one update with a finite gradient. The chunk must have been set.
  void Update(size_t chunk, double rate, absl::Span<const float> gradient);
  uint64_t updates(size_t chunk) const { return chunks_[chunk].updates; }
  // Returns parameters minus published, which is the part that workers lack. Valid until the next
  // call of any method.
  absl::Span<const float> Owed(size_t chunk) const { return Owed(chunk, &owed_); }
  // As above, in `scratch`.
  absl::Span<const float> Owed(size_t chunk, std::vector<float>* scratch) const;
  // Adds frames to the published parameters. The frames must be valid and must decode without
  // aggregator state.
  void Publish(size_t chunk, absl::Span<const std::byte> frames);
  // The version of the chunk that workers have. Empty before Set.
  absl::Span<const float> published(size_t chunk) const { return chunks_[chunk].published; }
  absl::Span<const float> parameters(size_t chunk) const { return chunks_[chunk].parameters; }
  // Returns the sum of squares of all Owed values. Visits all parameters.
  double OwedEnergy() const;

  // Returns the state of one chunk for a checkpoint.
  compress::SavedState Save(size_t chunk) const;
  // Restores the state of one chunk. If the state does not match the chunk and the rule, fails with
  // INVALID_ARGUMENT and changes nothing; the message describes the difference.
  absl::Status Restore(size_t chunk, const compress::SavedState& saved);

 private:
  struct ChunkState {
    size_t count = 0;
    uint64_t updates = 0;
    float momentum = 0;  // Momentum of the last update; the rule's own before the first.
    std::vector<float> parameters, published;  // Empty before Set.
    std::vector<std::vector<float>> slots;
  };

  const UpdateRule rule_;
  float momentum_;  // Momentum for the next updates.
  std::vector<ChunkState> chunks_;
  mutable std::vector<float> owed_;  // Scratch for Owed.
};

}  // namespace sluice::server
