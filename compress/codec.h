// Codec: floats to the payload of a frame and back.
// Stateless and pure: equal inputs give equal bytes on every machine and instruction set; no memory
// between calls, no clock, no global random state. What a lossy codec drops is written to the
// caller's residual in the same pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/magnitude_histogram.h"

namespace sluice {

// On the wire: never renumber, never reuse. docs/wire-format.md lists the layouts.
enum class CodecId : uint8_t {
  kNone = 0,
  kFp16 = 1,
  kBf16 = 2,
  kInt8 = 3,
  kTopK = 4,
  kTernary = 5,
};

// What one chunk is encoded from. acc = gradient + residual is what gets encoded; afterwards
// residual = acc - decoded, bit for bit what the receiver does not get.
struct EncodeInput {
  absl::Span<const float> gradient;
  absl::Span<float> residual;  // Same size, or empty: nothing is added and what is lost is lost.
  float threshold = 0;         // Sparse codecs keep |acc| >= threshold; 0: taken from this chunk.
  MagnitudeHistogram* magnitudes = nullptr;  // If set and the codec wants it, counts |acc|.
};

// Thread-safe (const). Codecs are made from a spec by the codec table.
class Codec {
 public:
  virtual ~Codec() = default;

  virtual CodecId id() const = 0;
  // True if every finite float survives; then no residual needs to be kept.
  virtual bool lossless() const = 0;
  // Share of elements a threshold should let through, in (0, 1]; 0: the codec takes no threshold.
  virtual double density() const { return 0; }
  // Upper bound of the payload for `count` elements.
  virtual size_t MaxPayloadSize(size_t count) const = 0;
  // Appends the payload to `*out`. INVALID_ARGUMENT if acc is not finite somewhere (the message
  // gives the index); then `*out`, the residual and the histogram are unchanged.
  virtual absl::Status Encode(const EncodeInput& input, std::vector<std::byte>* out) const = 0;
};

}  // namespace sluice
