// Compressor: one sender's encodings of all its chunks, step by step: a worker's uplink or a
// shard's downlink. Holds a compensator per chunk, the state of codecs that have one and, for
// sparse codecs, one threshold over all chunks that share a spec (with scope=tensor: of one
// tensor): the one that would have met the density on the step before (the first step takes each
// chunk's own). Bytes follow the density on average, not in each step. Not thread-safe.
// Deterministic: the order of chunks within a step does not matter.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/chunk_config.h"
#include "compress/device_encoder.h"
#include "compress/saved_state.h"

namespace sluice::compress {

// Name of the list that is a chunk's codec's; the others are its compensator's.
inline constexpr char kCodecState[] = "codec";

// What a Compressor remembers between steps: a checkpoint writes all of it.
struct SavedCompressor {
  struct Chunk {
    ChunkConfig config;  // As it was; others are refused.
    SavedState state;    // Of its compensator, and of its codec under kCodecState.

    friend bool operator==(const Chunk&, const Chunk&) = default;
  };
  std::vector<Chunk> chunks;
  // Of chunks that share a threshold, in the order of their first chunk: the threshold that the
  // next step begins with (0: none yet), and what the density is asked for times.
  std::vector<SavedState> groups;

  friend bool operator==(const SavedCompressor&, const SavedCompressor&) = default;
};

class Compressor {
 public:
  // The sender of a shard's downlink; workers are their ranks.
  static constexpr uint32_t kShardSender = 0xFFFFFFFF;
  struct Options {
    uint64_t seed = 0;  // Of the job: equal for all senders.
    uint32_t sender = 0;
    // Encodes gradients that lie there, with the same bytes; it outlives the compressor. Null: none
    // do.
    EncodingDevice* device = nullptr;
    // What lossless codecs would have sent of chunks that EncodeEach refuses together stays owed as
    // well: it makes residuals for it. False: without a residual it is dropped.
    bool owes_lossless = false;
  };

  Compressor(absl::Span<const ChunkConfig> chunks, const Options& options);
  ~Compressor();
  Compressor(Compressor&&) noexcept;
  Compressor& operator=(Compressor&&) noexcept;

  size_t chunks() const;
  // Appends the frame of `chunk` (an index into what the constructor got) to `*frame`.
  // INVALID_ARGUMENT if the gradient is not finite; then nothing changed.
  absl::Status Encode(size_t chunk, uint64_t step, absl::Span<const float> gradient,
                      std::vector<std::byte>* frame);
  // OK if Encode would accept the gradient.
  absl::Status Check(size_t chunk, absl::Span<const float> gradient) const;
  // Encodes all of `chunks` (each at most once) or none. `*frames` becomes one frame per chunk, in
  // the same order. INVALID_ARGUMENT if a gradient is not finite, naming the first: nothing has
  // changed for the chunks of which that is so, the others' frames were taken back (without a
  // residual they are gone), and `*frames` means nothing. INVALID_ARGUMENT and nothing changed: no
  // such chunk, one twice, or another size.
  absl::Status EncodeAll(absl::Span<const uint32_t> chunks, uint64_t step,
                         absl::Span<const absl::Span<const float>> gradients,
                         std::vector<std::vector<std::byte>>* frames);
  // The same, of gradients that are made one by one: `gradient_of(i)`, of the right size, is asked
  // for once for each of `chunks`, in order, and used before the next. If `on_device` is not empty,
  // it says of each chunk whether the gradient lies on the device: then that is encoded there,
  // where there are kernels for its spec, and `gradient_of` is not asked. Other errors: the
  // device's; the compressor is of no use any more.
  absl::Status EncodeEach(absl::Span<const uint32_t> chunks, uint64_t step,
                          absl::FunctionRef<absl::Span<const float>(size_t)> gradient_of,
                          std::vector<std::vector<std::byte>>* frames,
                          absl::Span<const DeviceGradient> on_device = {});
  // Whether EncodeEach encodes the chunk there if its gradient lies on the device.
  bool EncodesOnDevice(size_t chunk) const;
  // The first position in `chunks` whose gradient the last EncodeEach refused.
  size_t refused() const;
  // Copies residuals that lie on a device to where Save, Check, residual and ResidualEnergy find
  // them, which is good until the next encoding. Does nothing without a device. Errors: the
  // device's.
  absl::Status FetchResiduals();
  absl::Status FetchResidual(size_t chunk);
  // What was published for the chunk: validated frames, one after the other. Before the chunk's
  // next Encode, once for each result.
  void Observe(size_t chunk, absl::Span<const std::byte> frames);
  // False: Observe does nothing for the chunk and need not be called.
  bool observes(size_t chunk) const;
  // Takes back the chunk's last frame, which was refused for good: into the residual, or out of the
  // memory.
  absl::Status TakeBack(size_t chunk, absl::Span<const std::byte> frame);
  // Call when all chunks of a step are encoded or skipped: thresholds follow.
  void EndStep(uint64_t step);

  // Between steps: after EndStep, before the next Encode. What was published and not yet observed
  // is not in it; a warm-up goes by the step that Encode is told.
  SavedCompressor Save() const;
  // From here on as the compressor that was saved, bit for bit, if seed and sender are the same.
  // INVALID_ARGUMENT, and nothing changed: it had other chunks or specs (the message says which),
  // or `saved` is not what Save gives.
  absl::Status Restore(const SavedCompressor& saved);

  // Between steps: from here on each chunk is coded as its spec says, by chunk. What is owed stays,
  // and so do the thresholds of specs that stay; new ones begin with each chunk's own.
  // INVALID_ARGUMENT, and nothing changed: another number of specs, another compensator, or a codec
  // that has a state, before or now.
  absl::Status Recode(absl::Span<const CodecSpec> specs);

  size_t MaxFrameSize(size_t chunk) const;
  // Empty while nothing was ever owed.
  absl::Span<const float> residual(size_t chunk) const;
  // Sum of squares of all residuals, for metrics.
  double ResidualEnergy() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::compress
