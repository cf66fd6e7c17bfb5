// Replica: the parameters that a shard keeps where it does the job's updates: as they are, and as
// the workers have them. What is published of a chunk is how far the two are apart, so that what an
// encoding leaves out goes with the next: no other residual is needed, and workers that have seen
// everything published hold `published` bit for bit. Not thread-safe.
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

class Replica {
 public:
  // `counts`: elements of each chunk; 0 for one that has no parameters (of buffers).
  Replica(UpdateRule rule, absl::Span<const uint32_t> counts);

  // What it takes for each element, in bytes.
  static size_t BytesPerElement(const UpdateRule& rule);

  // Of every chunk's next update, and those after it; none: the rule's own. A chunk's slots follow
  // with its next update, so that no step is longer than its neighbours.
  void SetMomentum(std::optional<float> momentum);

  // Parameters of the start; workers have the same.
  void Set(size_t chunk, absl::Span<const float> values);
  // The same of the valid frames in which workers get them, as they decode there.
  void SetFrom(size_t chunk, absl::Span<const std::byte> frames);
  // One update of a chunk that was set, by a finite gradient.
  void Update(size_t chunk, double rate, absl::Span<const float> gradient);
  uint64_t updates(size_t chunk) const { return chunks_[chunk].updates; }
  // What workers lack: parameters less published. Until the next call of anything.
  absl::Span<const float> Owed(size_t chunk) const;
  // These valid frames, which decode alone, were published.
  void Publish(size_t chunk, absl::Span<const std::byte> frames);
  // As workers have it; empty before Set.
  absl::Span<const float> published(size_t chunk) const { return chunks_[chunk].published; }
  absl::Span<const float> parameters(size_t chunk) const { return chunks_[chunk].parameters; }
  // Sum of squares of what is owed. Walks all.
  double OwedEnergy() const;

  // Of one chunk, for checkpoints.
  compress::SavedState Save(size_t chunk) const;
  // INVALID_ARGUMENT, and nothing changed: it is not of such a chunk and rule; how.
  absl::Status Restore(size_t chunk, const compress::SavedState& saved);

 private:
  struct ChunkState {
    size_t count = 0;
    uint64_t updates = 0;
    float momentum = 0;  // Of the last update; before the first the rule's own.
    std::vector<float> parameters, published;  // Empty before Set.
    std::vector<std::vector<float>> slots;
  };

  const UpdateRule rule_;
  float momentum_;  // Of the updates to come.
  std::vector<ChunkState> chunks_;
  mutable std::vector<float> owed_;  // Scratch of Owed.
};

}  // namespace sluice::server
