// SPDX-License-Identifier: Apache-2.0
// Sender: encodes all chunks of a Side with one codec, with error feedback if the spec enables it.
// It starts in the state that a codec has after several steps: with a full residual and the
// threshold for its density.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/memory.h"
#include "bench/streams.h"
#include "compress/codec.h"
#include "compress/codec_spec.h"

namespace sluice::bench {

class Sender {
 public:
  // `side` must outlive the sender. Overwrites its residual, unless `feedback` is false.
  Sender(const std::string& spec, Side* side, bool feedback);
  Sender(const std::string& spec, Side* side);  // Feedback as in the spec.

  // Shifts the gradients and recomputes their threshold.
  void NextPass();
  // Encodes one chunk to its own frame.
  void EncodeFrame(size_t chunk);
  // Encodes one chunk's payload to a buffer that all chunks share, or to its own buffer.
  void EncodePayload(size_t chunk);
  void EncodePayloadApart(size_t chunk);
  void EncodeSlice(size_t slice);  // Encodes all frames of the slice.

  // Kernel rows use the next two functions.
  compress::EncodeInput Input(size_t chunk);
  float threshold() const { return threshold_; }
  // Counts magnitudes for the next threshold, like a Compressor with all these chunks.
  void SearchThresholds() { searches_ = true; }

  const compress::Codec& codec() const { return *codec_; }
  const std::vector<std::byte>& frame(size_t chunk) const { return frames_[chunk]; }

 private:
  void WarmUp();
  void EncodePayloadTo(size_t chunk, std::vector<std::byte>* payload);

  const compress::CodecSpec spec_;
  const std::unique_ptr<compress::Codec> codec_;
  Side* const side_;
  const bool feedback_;
  bool searches_ = false;
  compress::MagnitudeHistogram magnitudes_;
  compress::EncodeScratch scratch_;
  std::vector<std::vector<std::byte>> frames_;
  std::vector<std::byte> payload_;
  std::vector<std::vector<float>> states_;
  float threshold_ = 0;
  size_t offset_ = 0;
};

// Frames of kSumInputs senders for every chunk, each in separate memory.
struct SenderFrames {
  std::vector<std::vector<std::byte>> of_sender[kSumInputs];
  double kept_per_chunk = 0;  // Sum over all senders.
};
SenderFrames FramesOf(const std::string& spec, Side* side);

}  // namespace sluice::bench
