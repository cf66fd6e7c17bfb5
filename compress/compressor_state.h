// SPDX-License-Identifier: Apache-2.0
// The state of a Compressor. compressor_encoding.cc has the functions that encode on the host and
// on the device, compressor.cc has the others. Only these two files include this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compress/compressor.h"
#include "compress/encode_lane.h"
#include "compress/feedback/codec_group.h"
#include "compress/feedback/compensator.h"

namespace sluice::compress {

struct ChunkState {
  ChunkConfig config;
  size_t group = 0;
  std::unique_ptr<Compensator> compensator;
  std::vector<float> codec_state;
  // True while the residual is on the device. The compensator then has either no residual or the
  // copy that Fetch made.
  bool on_device = false;
  bool fetched = false;

  std::vector<StateField> Fields() {
    std::vector<StateField> fields = compensator->State();
    if (!codec_state.empty()) fields.push_back({kCodecState, &codec_state, codec_state.size()});
    return fields;
  }
};

struct Compressor::State {
  Options options;
  std::vector<CodecGroup> groups;
  std::vector<ChunkState> chunks;
  // Scratch buffer of CheckList. All entries are false between calls.
  std::vector<bool> listed;
  std::vector<EncodeLane> lanes;       // At least one.
  std::vector<absl::Status> outcomes;  // Scratch buffer: by position, whether a chunk was encoded.
  size_t refused = 0;
  std::unique_ptr<DeviceEncoder> encoder;  // Null without a device.
  std::vector<DeviceEncoder::Task> tasks;  // This member and the next two are scratch buffers.
  std::vector<DeviceEncoder::Encoded> encoded;
  std::vector<size_t> positions;

  // Finds or adds the chunk's group. A new group inherits the state of an equal group in `before`.
  size_t FindOrAddGroup(const ChunkConfig& chunk, std::vector<CodecGroup>* before);
  absl::Status CheckRecoding(size_t chunk, const CodecSpec& spec) const;
  absl::Status CheckId(size_t chunk) const;
  absl::Status CheckSize(size_t chunk, size_t elements) const;
  absl::Status CheckGradient(size_t chunk, absl::Span<const float> gradient) const;
  // Checks that all chunks exist and that none is listed twice.
  absl::Status CheckList(absl::Span<const uint32_t> ids);
  // Returns the input without the gradient, for both kinds of encoders.
  EncodeInput InputOf(size_t chunk, uint64_t step, GroupCounts* counts);
  absl::Status EncodeChecked(size_t chunk, uint64_t step, absl::Span<const float> gradient,
                             EncodeScratch* scratch, GroupCounts* counts,
                             std::vector<std::byte>* frame);
  // Encodes the chunks that `on_host` names by their positions in `ids`, and sets `outcomes`.
  void EncodeOnHost(Parallel* parallel, absl::Span<const uint32_t> ids, uint64_t step,
                    absl::Span<const size_t> on_host, GradientOfChunk gradient_of,
                    std::vector<std::vector<std::byte>>* frames);

  bool EncodesOnDevice(size_t chunk) const;
  // Returns true if the chunk has a residual on the host or on the device.
  bool HasResidual(size_t chunk) const;
  // Returns true if the gradient is on the device and the device can encode the chunk.
  bool GoesToDevice(size_t chunk, const DeviceGradient& gradient) const;
  absl::Status MoveToDevice(ChunkState* chunk, size_t index);
  absl::Status MoveToHost(size_t chunk);
  absl::Status Fetch(ChunkState* chunk, size_t index);
  // Encodes the chunks in `ids` that the device can encode. Calls `refuse` with the position of
  // each chunk whose gradient is not finite.
  absl::Status EncodeOnDevice(absl::Span<const uint32_t> ids, uint64_t step,
                              absl::Span<const DeviceGradient> gradients,
                              absl::FunctionRef<void(size_t)> refuse,
                              std::vector<std::vector<std::byte>>* frames);
};

}  // namespace sluice::compress
