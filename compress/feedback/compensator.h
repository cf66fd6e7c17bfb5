// SPDX-License-Identifier: Apache-2.0
// Compensator: computes the input of a codec for one chunk, and keeps what the codec drops. A
// compensator owns its state and is not thread-safe. Most compensators obey the additive
// conservation law for any mix of codecs and thresholds: sum of decoded frames + residual == sum of
// gradients, within fp32 rounding. The other compensators document their own conservation law.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"
#include "compress/saved_state.h"

namespace sluice::compress {

class Compensator {
 public:
  virtual ~Compensator() = default;

  // Returns OK if Encode would accept `gradient`: it has the chunk's size, and the codec's input is
  // finite. Fails with INVALID_ARGUMENT and names the first element that is not finite.
  virtual absl::Status Check(absl::Span<const float> gradient) const = 0;
  // Appends the frame for input.gradient to `*frame`. Check must have accepted the gradient since
  // the last change of state. input.residual must be empty, because the compensator sets it to its
  // own residual. Fails only if the frame might exceed kMaxFrameSize, and then changes nothing.
  virtual absl::Status Encode(const Codec& codec, EncodeInput input,
                              std::vector<std::byte>* frame) = 0;
  // Undoes the encoding of the last frame after the receiver has refused it permanently: adds the
  // decoded values to the residual. Without feedback, the values are lost.
  virtual absl::Status ReturnFrame(absl::Span<const std::byte> frame) = 0;
  // Returns the values that are still owed to the receiver. Empty if no value was ever dropped.
  virtual absl::Span<const float> residual() const = 0;
  // Returns the residual if it is the only state, and otherwise null. The owner may move the
  // residual to another place but must put it back before it calls any other method.
  virtual std::vector<float>* MovableResidual() { return nullptr; }
  // Returns the state between steps (saved_state.h). The pointers are valid as long as the
  // compensator exists.
  virtual std::vector<StateField> State() { return {}; }
};

// Never returns null. Encode may get a different codec in each step.
std::unique_ptr<Compensator> MakeCompensator(const CodecSpec& spec, size_t count);

// Error feedback (Seide et al. 2014; Karimireddy et al. 2019): encodes acc = gradient + residual
// and sets residual = acc - decoded. The residual starts at zero. A lossless codec sends the whole
// residual.
//
// With a `decay` in (0, 1), acc = gradient + decay * residual (SparseLoCo, Sarfi et al. 2025). What
// is not sent then fades like an outer momentum instead of being owed until it is sent.
std::unique_ptr<Compensator> MakeErrorFeedback(size_t count, double decay = 0);

// For `/noef`: values that a codec drops are lost.
std::unique_ptr<Compensator> MakeNoFeedback(size_t count);

}  // namespace sluice::compress
