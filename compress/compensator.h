// Compensator: what goes into a codec, and what is kept of it for later, for one chunk.
// Owns its state; not thread-safe. The conservation law, for any mix of codecs and thresholds:
// sum of decoded frames + residual == sum of gradients, within fp32 rounding.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"

namespace sluice {

class Compensator {
 public:
  virtual ~Compensator() = default;

  // Appends the frame for `gradient` (of the chunk's size) to `*frame`. Threshold and histogram as
  // in EncodeInput. INVALID_ARGUMENT if the gradient is not finite; then nothing changed.
  virtual absl::Status Encode(const Codec& codec, absl::Span<const float> gradient, float threshold,
                              MagnitudeHistogram* magnitudes, std::vector<std::byte>* frame) = 0;
  // Takes back a frame that was refused for good: residual += decode(frame). Without feedback it is
  // gone.
  virtual absl::Status TakeBack(absl::Span<const std::byte> frame) = 0;
  // What is still owed to the receiver; empty while nothing ever was.
  virtual absl::Span<const float> residual() const = 0;
  // Sets the residual, e.g. from a checkpoint; empty: nothing is owed. INVALID_ARGUMENT on another
  // size.
  virtual absl::Status SetResidual(absl::Span<const float> residual) = 0;
};

// Error feedback (Seide et al. 2014; Karimireddy et al. 2019): acc = gradient + residual is
// encoded, residual = acc - decoded. Starts at zero. A lossless codec flushes it.
std::unique_ptr<Compensator> MakeErrorFeedback(size_t count);

// For `/noef`: what a codec drops is gone.
std::unique_ptr<Compensator> MakeNoFeedback(size_t count);

}  // namespace sluice
