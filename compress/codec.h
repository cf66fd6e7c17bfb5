// SPDX-License-Identifier: Apache-2.0
// Codec: encodes floats as the payload of a frame. Pure: equal inputs give equal bytes on every
// machine and instruction set. A codec has no clock, no global random state, and no memory between
// calls except the state that callers pass in. A lossy codec writes the dropped amounts to the
// caller's residual in the same pass. The functions in format_table.h read payloads.
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

// Buffers that encoders reuse, so that a step allocates no memory. Their contents are undefined
// between calls.
struct EncodeScratch {
  // Buffer for compensators: the input of a codec, or decoded values.
  std::vector<float> compensated;
  // Buffer for compensators: a residual that is discarded.
  std::vector<float> dropped;
  std::vector<uint32_t> positions;
  std::vector<uint32_t> numbers;
  std::vector<uint32_t> scales;
  std::vector<float> values;
  std::vector<float> floats;
  std::vector<uint8_t> bytes;
};

// Grows a scratch buffer to at least `size` elements and returns its data.
template <typename T>
T* AtLeast(std::vector<T>* buffer, size_t size) {
  if (buffer->size() < size) buffer->resize(size);
  return buffer->data();
}

// Input for encoding one chunk. A codec encodes acc = gradient + residual. It then sets residual =
// acc - decoded, which is exactly, bit for bit, the part that the receiver does not get.
struct EncodeInput {
  absl::Span<const float> gradient;
  // Either has the gradient's size or is empty. If it is empty, the codec encodes the gradient
  // alone, and dropped values are lost.
  absl::Span<float> residual = {};
  // Sparse codecs keep elements with |acc| >= threshold. If it is 0, they derive a threshold from
  // the chunk.
  float threshold = 0;
  // If set, a codec that uses thresholds counts each |acc| here.
  MagnitudeHistogram* magnitudes = nullptr;
  // The histogram counts one in this many elements. If 0, the histogram chooses the number.
  size_t magnitude_stride = 0;
  // If set, a codec with a density adds the number of kept elements here.
  uint64_t* kept = nullptr;
  // If not 0, replaces the codec's own density when the codec derives a threshold.
  double density = 0;
  // Random numbers depend only on these keys (base/random.h). Both keys differ by chunk and step.
  // `own_key` also differs by sender; `shared_key` is the same for all senders of a chunk.
  uint64_t own_key = 0;
  uint64_t shared_key = 0;
  // Number of rows if the chunk is a matrix. 0 for a flat chunk.
  uint32_t rows = 0;
  absl::Span<float> state = {};  // StateSize() floats.
  // For EncodeFrame: true if the caller has checked that every element of acc is finite.
  bool finite = false;
  // Never null in Codec::Encode. If the caller passes none, EncodeFrame provides a buffer.
  EncodeScratch* scratch = nullptr;
};

// Encodes chunks. All methods are const and thread-safe. The codec table makes codecs from specs.
class Codec {
 public:
  virtual ~Codec() = default;

  virtual FormatId format() const = 0;
  // Returns true if every finite float is preserved. Such a codec needs no residual.
  virtual bool lossless() const = 0;
  // Returns the share of elements that should reach the threshold, in (0, 1]. Returns 0 if the
  // codec uses no threshold.
  virtual double density() const { return 0; }
  // Returns true if Observe has an effect.
  virtual bool observes() const { return false; }
  // Returns an upper bound of the payload's size for `count` elements in `rows` rows (0: flat).
  virtual size_t MaxPayloadSize(size_t count, uint32_t rows) const = 0;

  // Returns the number of floats of state that the sender keeps for each chunk between steps. Most
  // codecs return 0. Checkpoints save the state. The caller fills a new state with 0 and then calls
  // InitState.
  virtual size_t StateSize(size_t count, uint32_t rows) const;
  virtual void InitState(size_t count, uint32_t rows, uint64_t shared_key,
                         absl::Span<float> state) const;
  // Updates the state from the validated frames that the receiver published for the chunk. `frames`
  // contains them one after another. Only codecs whose senders share parameters need this.
  virtual void Observe(absl::Span<const std::byte> frames, absl::Span<float> state) const;

  // Undoes an encoding, for codecs that have a state and whose frames only their aggregator can
  // decode. `payload` is the last payload that was encoded with `state`, and the receiver has
  // refused it permanently. Adds the decoded values to `values`, and sets `state` so that the next
  // frame does not depend on the refused one.
  virtual void ReturnFrame(absl::Span<const std::byte> payload, absl::Span<float> state,
                           absl::Span<float> values) const;

  // Appends the payload of a chunk to `*out`. Every element of acc must be finite and `scratch`
  // must be set; EncodeFrame (frame.h) ensures both conditions.
  virtual void Encode(const EncodeInput& input, std::vector<std::byte>* out) const = 0;
};

}  // namespace sluice::compress
