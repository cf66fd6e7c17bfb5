// SPDX-License-Identifier: Apache-2.0
// Batch: the chunks that a GpuEncoder encodes together, and the offsets of all their data. The
// offsets are computed before the memory is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compress/device_encoder.h"
#include "compress/gpu/device_buffer.h"
#include "compress/gpu/kernels/work.h"

namespace sluice::compress::gpu {

// Tasks with the same coding and the same gradient type share a Work. Tasks whose magnitudes are
// counted together share a Sample. The comments on offsets (`..._at`) name the buffer.
struct Batch {
  using Task = DeviceEncoder::Task;

  struct Sample {
    MagnitudeHistogram* magnitudes = nullptr;
    ElementType gradient = ElementType::kFloat32;
    std::vector<size_t> tasks;
    std::vector<uint32_t> strides;
    // Offsets in the buffer of inputs.
    size_t chunks_at = 0, strides_at = 0;
    // Offset in the buffer of results.
    size_t counts_at = 0;
  };
  struct Work {
    Coding coding;
    ElementType gradient = ElementType::kFloat32;
    std::vector<size_t> tasks;
    // The chunks. The constructor sets no addresses except those of the gradients.
    std::vector<Chunk> chunks;
    std::vector<Tile> tiles;
    uint32_t blocks = 0;
    // Only for kPowerSgd. The constructor sets no addresses.
    std::vector<LowRankMatrix> matrices;
    std::vector<Tile> row_tiles, column_tiles;
    // Offsets in the buffer of inputs, up to column_tiles_at.
    size_t chunks_at = 0, tiles_at = 0, thresholds_at = 0;
    size_t places_at = 0, exponents_at = 0;
    size_t matrices_at = 0, row_tiles_at = 0, column_tiles_at = 0;
    // Offsets in the buffer of results.
    size_t largest_at = 0, sizes_at = 0, kept_at = 0;
  };
  // The place of a task's data.
  struct Place {
    size_t work = 0, index = 0;
    // Offset of the kernels' output in the buffer of payloads.
    size_t payload_at = 0;
    // Number of bytes of the payload that precede the kernels' output.
    size_t before = 0;
    // Offset in the buffer of states, for kPowerSgd.
    size_t state_at = 0;
    // Destination of the new residual.
    float* left = nullptr;
  };

  // `tasks` must outlive the batch.
  explicit Batch(absl::Span<const Task> tasks);

  const absl::Span<const Task> tasks;
  std::vector<Work> works;
  std::vector<Sample> samples;
  std::vector<Place> places;  // By task.
  std::vector<float> thresholds;
  Offsets inputs, results, payloads, states;
  // Offsets in the buffer of results. The samples are the last part of that buffer.
  size_t refused_at = 0, samples_at = 0;
  // Size of the scratch memory in bytes. The works use it one after another.
  size_t scratch = 0;

  const Coding& CodingOfTask(size_t task) const { return works[places[task].work].coding; }
  Chunk& ChunkOf(size_t task) { return works[places[task].work].chunks[places[task].index]; }

 private:
  Work& WorkOf(const Task& task);
  Sample& SampleOf(const Task& task);
  void Add(const Task& task, size_t index);
  void AddMatrix(const Task& task, Work* work, Place* place);
  void LayOut(Work* work);
};

// Returns the scratch buffers of `work`, which start at the beginning of `memory`. Sets `*size` to
// their total size in bytes.
Scratch ScratchOf(const Batch::Work& work, const DeviceBuffer& memory, size_t* size);

}  // namespace sluice::compress::gpu
