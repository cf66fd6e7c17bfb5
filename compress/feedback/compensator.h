// Compensator: what goes into a codec, and what is kept of it for later, for one chunk.
// Owns its state; not thread-safe. Most obey the additive conservation law, for any mix of codecs
// and thresholds: sum of decoded frames + residual == sum of gradients, within fp32 rounding. Those
// that do not say theirs.
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

  // OK if Encode would accept `gradient`: it has the chunk's size, and what would be encoded is
  // finite. INVALID_ARGUMENT names the first element that is not.
  virtual absl::Status Check(absl::Span<const float> gradient) const = 0;
  // Appends the frame for input.gradient, which Check has accepted since the last change, to
  // `*frame`. input.residual is empty: the compensator puts its own there. Fails only if the frame
  // might be over kMaxFrameSize; then nothing changed.
  virtual absl::Status Encode(const Codec& codec, EncodeInput input,
                              std::vector<std::byte>* frame) = 0;
  // Takes back the last frame, which was refused for good: what it decodes to is owed again.
  // Without feedback it is gone.
  virtual absl::Status TakeBack(absl::Span<const std::byte> frame) = 0;
  // What is still owed to the receiver; empty while nothing ever was.
  virtual absl::Span<const float> residual() const = 0;
  // The residual as it lies in memory, if it is all that there is to remember: the owner may then
  // keep it elsewhere, and put it back before anything else is asked for. Else null.
  virtual std::vector<float>* MovableResidual() { return nullptr; }
  // What it remembers between steps (saved_state.h). The pointers live as long as it does.
  virtual std::vector<StateField> State() { return {}; }
};

// Never null. The codec given to Encode may change from step to step.
std::unique_ptr<Compensator> MakeCompensator(const CodecSpec& spec, size_t count);

// Error feedback (Seide et al. 2014; Karimireddy et al. 2019): acc = gradient + residual is
// encoded, residual = acc - decoded. Starts at zero. A lossless codec flushes it.
std::unique_ptr<Compensator> MakeErrorFeedback(size_t count);

// For `/noef`: what a codec drops is gone.
std::unique_ptr<Compensator> MakeNoFeedback(size_t count);

}  // namespace sluice::compress
