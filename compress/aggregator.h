// SPDX-License-Identifier: Apache-2.0
// Aggregator: the receiving end of one chunk. The aggregator adds up the frames of many senders.
// For most codecs, the result is the sum of the decoded frames divided by their number, and the
// aggregator has no state. Separate aggregators serve votes, sketches, and codecs or compensators
// whose receiver has a memory. Deterministic: the result is a function of the state and the frames,
// in the order given. Not thread-safe.
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

  // Returns OK only if `frame` can be added now. Returns the same errors as ValidateFrame.
  virtual absl::Status Validate(uint32_t sender, absl::Span<const std::byte> frame) const = 0;
  // Adds frames that Validate accepted to `sum`, one after the other. Pass each sender once per
  // step, in ascending order over all calls of a step. `sum` has one float per element and must be
  // 0 before a step's first call. Until Close, only the aggregator can interpret the contents of
  // `sum`.
  virtual void Add(absl::Span<const SenderFrame> frames, absl::Span<float> sum) = 0;
  // Ends a step: turns the sum of `n` > 0 contributions into their mean (or the codec's equivalent
  // of a mean), in place. Do not call it for a step without contributions.
  virtual void Close(uint32_t n, absl::Span<float> sum) = 0;
  // Some codecs publish a frame that senders need for their next step in addition to the mean.
  // Appends that frame, if there is one; it contains no values. Call this after Close.
  virtual void AppendShared(std::vector<std::byte>* out) const;
  // Returns the state between steps, for checkpoints (saved_state.h). Save and restore the state
  // only after Close or before a step's first Add. The pointers are valid as long as the aggregator
  // exists.
  virtual std::vector<StateField> State() { return {}; }
  // Returns an upper bound of the state's size in bytes, for memory limits.
  virtual size_t state_bytes() const { return 0; }
};

// Makes the aggregator of a chunk. The ranks of all senders must be below `senders`.
std::unique_ptr<Aggregator> MakeAggregator(const ChunkConfig& config, uint32_t senders);

// Prefetches the beginnings of frames that arrived some time ago. Fetching them all at once is
// faster than taking one cache miss after another while the frames are read.
void PrefetchFrames(absl::Span<const SenderFrame> frames);

// Makes the aggregator of most codecs, which adds decoded frames and divides the sum by n.
std::unique_ptr<Aggregator> MakeAdditiveAggregator(size_t count);

}  // namespace sluice::compress
