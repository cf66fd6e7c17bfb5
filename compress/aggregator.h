// Aggregator: the receiving end of one chunk: what many senders' frames add up to.
// For most codecs that is the sum of what the frames decode to, divided by their number, and no
// state. Votes, sketches and codecs or compensators whose receiver remembers something have their
// own. Deterministic: a function of its state and the frames, in the order given. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/chunk_config.h"
#include "compress/saved_state.h"

namespace sluice::compress {

struct SenderFrame {
  uint32_t sender = 0;
  absl::Span<const std::byte> frame;
};

class Aggregator {
 public:
  virtual ~Aggregator() = default;

  // OK only if `frame` can be added now. Errors as ValidateFrame.
  virtual absl::Status Validate(uint32_t sender, absl::Span<const std::byte> frame) const = 0;
  // Adds frames that Validate accepted to `sum`, one after the other. Each sender once per step, in
  // ascending order over all calls of a step. `sum` has one float per element, 0 before a step's
  // first; what is in it before Close is the aggregator's own.
  virtual void Add(absl::Span<const SenderFrame> frames, absl::Span<float> sum) = 0;
  // Ends a step: turns the sum of `n` > 0 contributions into their mean (or what the codec has in
  // its place), in place. A step of no contributions is not closed.
  virtual void Close(uint32_t n, absl::Span<float> sum) = 0;
  // After Close: appends the frame, if there is one, that senders need besides the mean for their
  // next step. It decodes to nothing.
  virtual void AppendShared(std::vector<std::byte>* out) const;
  // What it remembers between steps, for checkpoints (saved_state.h): ask and restore after Close,
  // or before a step's first Add. The pointers live as long as it does.
  virtual std::vector<StateField> State() { return {}; }
  // What it may hold, in bytes; for memory limits.
  virtual size_t state_bytes() const { return 0; }
};

// `senders`: frames come from ranks below it.
std::unique_ptr<Aggregator> MakeAggregator(const ChunkConfig& config, uint32_t senders);

// Starts to fetch the beginnings of frames, which have lain since they came: all at once rather
// than one after the other as they are read.
void PrefetchFrames(absl::Span<const SenderFrame> frames);

// What most are: adds decoded frames, divides by n.
std::unique_ptr<Aggregator> MakeAdditiveAggregator(size_t count);

}  // namespace sluice::compress
