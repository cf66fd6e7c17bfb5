// SPDX-License-Identifier: Apache-2.0
// Compressor: encodes all chunks of one sender, step by step, for a worker's uplink or a shard's
// downlink. It holds a compensator for each chunk and the state of stateful codecs. For sparse
// codecs, it also holds one threshold for all chunks with the same spec (with scope=tensor, one for
// each tensor).
//
// A step's threshold is the one that would have met the density in the previous step; in the first
// step, each chunk takes its own threshold. Therefore the number of bytes follows the density on
// average, not in each step.
//
// Not thread-safe. Deterministic: the order of chunks within a step does not matter.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/parallel.h"
#include "compress/chunk_config.h"
#include "compress/device_encoder.h"
#include "compress/saved_state.h"

namespace sluice::compress {

// Name of the list with the state of a chunk's codec. All other lists belong to the chunk's
// compensator.
inline constexpr char kCodecState[] = "codec";

// State of a Compressor between steps. A checkpoint contains all of it.
struct SavedCompressor {
  struct Chunk {
    // The config when the state was saved. Restore refuses a different config.
    ChunkConfig config;
    // State of the compensator, and of the codec under kCodecState.
    SavedState state;

    friend bool operator==(const Chunk&, const Chunk&) = default;
  };
  std::vector<Chunk> chunks;
  // One state for each group of chunks that share a threshold, in the order of the groups' first
  // chunks. It contains the threshold for the next step (0 if there is none yet) and the factor
  // that corrects the density. Restore also accepts an empty list: all thresholds then begin anew.
  std::vector<SavedState> groups;

  friend bool operator==(const SavedCompressor&, const SavedCompressor&) = default;
};

// Returns the gradient of the chunk at this position of a list. Each lane is a thread.
using GradientOfChunk = absl::FunctionRef<absl::Span<const float>(size_t position, size_t lane)>;

class Compressor {
 public:
  // Sender number of a shard's downlink. Workers use their ranks.
  static constexpr uint32_t kShardSender = 0xFFFFFFFF;
  struct Options {
    uint64_t seed = 0;  // Seed of the job, the same for all senders.
    uint32_t sender = 0;
    // Encodes gradients that are on the device, and produces the same bytes as on the host. The
    // device must outlive the compressor. Null if all gradients are on the host.
    EncodingDevice* device = nullptr;
    // If true, EncodeEach does not lose the values of lossless codecs when it refuses a gradient:
    // it creates residuals for them if necessary. If false, values of chunks without one are lost.
    bool owes_lossless = false;
  };

  Compressor(absl::Span<const ChunkConfig> chunks, const Options& options);
  ~Compressor();
  Compressor(Compressor&&) noexcept;
  Compressor& operator=(Compressor&&) noexcept;

  size_t chunks() const;
  // Appends the frame of `chunk` (an index into the constructor's list) to `*frame`. Fails with
  // INVALID_ARGUMENT and changes nothing if the gradient is not finite.
  absl::Status Encode(size_t chunk, uint64_t step, absl::Span<const float> gradient,
                      std::vector<std::byte>* frame);
  // Returns OK if Encode would accept the gradient.
  absl::Status Check(size_t chunk, absl::Span<const float> gradient) const;
  // Encodes all of `chunks` (each at most once) or none. `*frames` gets one frame per chunk, in the
  // same order.
  //
  // The method calls `gradient_of(i)` once for each of `chunks`, in order, and uses the result
  // before the next call. The result must have the chunk's size. If `on_device` is not empty, it
  // has one entry per chunk. If a chunk's gradient is on the device and the device has kernels for
  // the chunk's spec, the device encodes the chunk, and the method does not call `gradient_of` for
  // it.
  //
  // Fails with INVALID_ARGUMENT if a gradient is not finite; the message names the first one.
  // Chunks whose gradient is not finite are unchanged. The frames of the other chunks are added
  // back to their residuals; values of chunks without a residual are lost. The contents of
  // `*frames` are then undefined.
  //
  // Fails with INVALID_ARGUMENT and changes nothing if a chunk does not exist or is listed twice.
  // Other errors come from the device, and the compressor is unusable after such an error.
  absl::Status EncodeEach(absl::Span<const uint32_t> chunks, uint64_t step,
                          absl::FunctionRef<absl::Span<const float>(size_t)> gradient_of,
                          std::vector<std::vector<std::byte>>* frames,
                          absl::Span<const DeviceGradient> on_device = {});
  // As EncodeEach, on the lanes of `parallel`, or on the caller's thread if `parallel` is null. The
  // result, and the state after it, are the same for all numbers of lanes. Calls of `gradient_of`
  // have the position of the chunk and the lane; each lane uses a result before its next call.
  absl::Status EncodeInLanes(Parallel* parallel, absl::Span<const uint32_t> chunks, uint64_t step,
                             GradientOfChunk gradient_of,
                             std::vector<std::vector<std::byte>>* frames,
                             absl::Span<const DeviceGradient> on_device = {});
  // Returns true if EncodeEach encodes the chunk on the device when its gradient is on the device.
  bool EncodesOnDevice(size_t chunk) const;
  // Returns the first position in `chunks` whose gradient the last EncodeEach refused.
  size_t refused() const;
  // Copies residuals from the device to the host, for Save, Check, residual and ResidualEnergy. The
  // copies are valid until the next encoding. Does nothing without a device. Returns the device's
  // errors.
  absl::Status FetchResiduals();
  absl::Status FetchResidual(size_t chunk);
  // Updates the chunk's state from its published frames. They must be validated and stored one
  // after another. Call this once for each result, before the chunk's next Encode.
  void Observe(size_t chunk, absl::Span<const std::byte> frames);
  // Returns false if Observe has no effect for the chunk, so that the caller need not call it.
  bool observes(size_t chunk) const;
  // Undoes the encoding of the chunk's last frame after the receiver has refused it permanently:
  // adds its values to the residual, or removes them from the memory. Or adds this share of the
  // values of an earlier frame to the residual, if the codec's frames decode alone and its
  // compensator has a residual. Compensators without one lose the values.
  absl::Status ReturnFrame(size_t chunk, absl::Span<const std::byte> frame, float share = 1);
  // Updates the thresholds. Call this when all chunks of a step have been encoded or skipped.
  void EndStep(uint64_t step);

  // Returns the state. Call this between steps: after EndStep and before the next Encode. The
  // result does not include published frames that have not been observed yet. It does not record
  // the position in a warm-up, because Encode receives the step.
  SavedCompressor Save() const;
  // Restores the state. The compressor then continues like the saved one, bit for bit, if seed and
  // sender are the same. Fails with INVALID_ARGUMENT and changes nothing if the saved compressor
  // had other chunks or specs (the message names the difference), or if `saved` is not a valid
  // result of Save.
  absl::Status Restore(const SavedCompressor& saved);

  // Sets the spec of each chunk. Call this between steps. Residuals and the thresholds of specs
  // that remain in use are kept. A chunk with a new spec begins with its own threshold. Fails with
  // INVALID_ARGUMENT and changes nothing if the number of specs is wrong, a compensator would
  // change, the old or the new codec has a state, or a frame could exceed the size limit.
  absl::Status Recode(absl::Span<const CodecSpec> specs);

  size_t MaxFrameSize(size_t chunk) const;
  // Returns the chunk's residual. Empty if the chunk has never had a residual.
  absl::Span<const float> residual(size_t chunk) const;
  // Returns the sum of squares of all residuals, for metrics.
  double ResidualEnergy() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::compress
