// Sender: one codec over all chunks of a Side, with feedback where its spec has it, in the state
// that it reaches after some steps: its residual full, its threshold that of its density.
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
  // `side` must outlive it. Its residual is overwritten; `feedback` false: left alone.
  Sender(const std::string& spec, Side* side, bool feedback);
  Sender(const std::string& spec, Side* side);  // Feedback as the spec says.

  // Moves the gradients, and takes the threshold of what is to be encoded.
  void NextPass();
  // Encodes one chunk to its own frame.
  void EncodeFrame(size_t chunk);
  // Encodes one chunk's payload to a buffer that all share, or to its own.
  void EncodePayload(size_t chunk);
  void EncodePayloadApart(size_t chunk);
  void EncodeSlice(size_t slice);  // All its frames.

  // For kernels.
  compress::EncodeInput Input(size_t chunk);
  float threshold() const { return threshold_; }
  // Count magnitudes for the next threshold, as a Compressor with all these chunks would.
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

// Frames of kSumInputs senders for every chunk, each in memory of its own.
struct SenderFrames {
  std::vector<std::vector<std::byte>> of_sender[kSumInputs];
  double kept_per_chunk = 0;  // Of all senders.
};
SenderFrames FramesOf(const std::string& spec, Side* side);

}  // namespace sluice::bench
