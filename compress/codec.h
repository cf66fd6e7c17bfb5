// Codec: floats to the payload of a frame.
// Pure: equal inputs give equal bytes on every machine and instruction set; no memory between calls
// but the state that is passed in, no clock, no global random state. What a lossy codec drops is
// written to the caller's residual in the same pass. Reading payloads: format_table.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/coding/magnitude_histogram.h"
#include "compress/format_table.h"

namespace sluice::compress {

// Buffers that encoders use again and again, so that a step allocates nothing. What is in them
// means nothing between calls.
struct EncodeScratch {
  std::vector<float> compensated;  // The compensators' own: what they hand to a codec or read back.
  std::vector<float> dropped;      // Likewise: a residual that nobody keeps.
  std::vector<uint32_t> positions;
  std::vector<uint32_t> numbers;
  std::vector<uint32_t> scales;
  std::vector<float> values;
  std::vector<float> floats;
  std::vector<uint8_t> bytes;
};

// A buffer of a scratch, with at least `size` elements.
template <typename T>
T* AtLeast(std::vector<T>* buffer, size_t size) {
  if (buffer->size() < size) buffer->resize(size);
  return buffer->data();
}

// What one chunk is encoded from. acc = gradient + residual is what gets encoded; afterwards
// residual = acc - decoded, bit for bit what the receiver does not get.
struct EncodeInput {
  absl::Span<const float> gradient;
  absl::Span<float> residual =
      {};               // Same size, or empty: nothing is added and what is lost is lost.
  float threshold = 0;  // Sparse codecs keep |acc| >= threshold; 0: taken from this chunk.
  MagnitudeHistogram* magnitudes = nullptr;  // If set and the codec wants it, counts |acc| ...
  size_t magnitude_stride = 0;               // ... of one in so many elements; 0: as it sees fit.
  uint64_t* kept = nullptr;  // If set, a codec with a density adds how many elements it kept.
  double density = 0;        // In place of the codec's own, where a threshold is taken; 0: its own.
  // Random numbers come from these alone (base/random.h). Both differ by chunk and step; `own_key`
  // also by sender, `shared_key` is the same for all senders of a chunk.
  uint64_t own_key = 0;
  uint64_t shared_key = 0;
  uint32_t rows = 0;             // Of the matrix that the chunk is; 0: a flat one.
  absl::Span<float> state = {};  // StateSize() floats.
  bool finite = false;  // For EncodeFrame: the caller has checked that acc is finite everywhere.
  EncodeScratch* scratch = nullptr;  // Never null in Codec::Encode; EncodeFrame puts one in.
};

// Thread-safe (const). Codecs are made from a spec by the codec table.
class Codec {
 public:
  virtual ~Codec() = default;

  virtual FormatId format() const = 0;
  // True if every finite float survives; then no residual needs to be kept.
  virtual bool lossless() const = 0;
  // Share of elements a threshold should let through, in (0, 1]; 0: the codec takes no threshold.
  virtual double density() const { return 0; }
  // True if Observe does something.
  virtual bool observes() const { return false; }
  // Upper bound of the payload for `count` elements in `rows` rows (0: flat).
  virtual size_t MaxPayloadSize(size_t count, uint32_t rows) const = 0;

  // Floats that the sender carries from step to step for each chunk; 0 for most. A checkpoint saves
  // them. They start as InitState leaves them (before it they are 0).
  virtual size_t StateSize(size_t count, uint32_t rows) const;
  virtual void InitState(size_t count, uint32_t rows, uint64_t shared_key,
                         absl::Span<float> state) const;
  // `frames` (validated, one after the other) is what the receiver published for the chunk. Codecs
  // whose senders move in step follow it.
  virtual void Observe(absl::Span<const std::byte> frames, absl::Span<float> state) const;

  // For codecs with a state whose format no one else can decode: `payload` is the last that was
  // encoded with `state`, and was refused for good. Adds what it decodes to to `values`, and makes
  // `state` one whose next frame needs nothing of it.
  virtual void TakeBack(absl::Span<const std::byte> payload, absl::Span<float> state,
                        absl::Span<float> values) const;

  // Appends the payload of a chunk whose acc is finite everywhere to `*out`. EncodeFrame (frame.h)
  // is what checks that, and puts a scratch in if there is none.
  virtual void Encode(const EncodeInput& input, std::vector<std::byte>* out) const = 0;
};

}  // namespace sluice::compress
