// Compressor: one sender's encodings of all its chunks, step by step: a worker's uplink or a
// shard's downlink. Holds a compensator per chunk and, for sparse codecs, one threshold over all
// chunks that share a spec: the one that would have met the density on the step before (the first
// step takes each chunk's own). Bytes follow the density on average, not in each step. Not
// thread-safe. Deterministic: the order of chunks within a step does not matter.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"
#include "compress/compensator.h"

namespace sluice {

class Compressor {
 public:
  struct ChunkConfig {
    size_t count = 0;  // Elements.
    CodecSpec spec;
  };

  explicit Compressor(absl::Span<const ChunkConfig> chunks);
  ~Compressor();
  Compressor(Compressor&&) noexcept;
  Compressor& operator=(Compressor&&) noexcept;

  size_t chunks() const;
  // Appends the frame of `chunk` to `*frame`. INVALID_ARGUMENT if the gradient is not finite; then
  // nothing changed.
  absl::Status Encode(size_t chunk, absl::Span<const float> gradient,
                      std::vector<std::byte>* frame);
  // Encodes all of `chunks` (each at most once) or none: on error no residual, threshold or frame
  // has changed.
  // `*frames` becomes one frame per chunk, in the same order.
  absl::Status EncodeAll(absl::Span<const uint32_t> chunks,
                         absl::Span<const absl::Span<const float>> gradients,
                         std::vector<std::vector<std::byte>>* frames);
  // Takes a refused frame back into the residual.
  absl::Status TakeBack(size_t chunk, absl::Span<const std::byte> frame);
  // Call when all chunks of a step are encoded or skipped: thresholds follow.
  void EndStep();

  size_t MaxFrameSize(size_t chunk) const;
  // Empty while nothing was ever owed.
  absl::Span<const float> residual(size_t chunk) const;
  // Sum of squares of all residuals, for metrics.
  double ResidualEnergy() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice
