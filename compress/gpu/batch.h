// Batch: what a GpuEncoder encodes at once, and where all of it lies, before there is memory for
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compress/device_encoder.h"
#include "compress/gpu/device_buffer.h"
#include "compress/gpu/kernels/work.h"

namespace sluice::compress::gpu {

// Tasks of one coding and type of gradient are one work, and those that are counted together one
// sample. Offsets, `..._at`, are of the buffer that they are said to be in.
struct Batch {
  using Task = DeviceEncoder::Task;

  struct Sample {
    MagnitudeHistogram* magnitudes = nullptr;
    ElementType gradient = ElementType::kFloat32;
    std::vector<size_t> tasks;
    std::vector<uint32_t> strides;
    size_t chunks_at = 0, strides_at = 0;  // Of the inputs,
    size_t counts_at = 0;                  // and the results.
  };
  struct Work {
    Coding coding;
    ElementType gradient = ElementType::kFloat32;
    std::vector<size_t> tasks;
    std::vector<Chunk> chunks;  // Without addresses, but for the gradients'.
    std::vector<Tile> tiles;
    uint32_t blocks = 0;
    std::vector<LowRankMatrix> matrices;  // For kPowerSgd; likewise.
    std::vector<Tile> row_tiles, column_tiles;
    size_t chunks_at = 0, tiles_at = 0, thresholds_at = 0;  // Of the inputs,
    size_t places_at = 0, exponents_at = 0;
    size_t matrices_at = 0, row_tiles_at = 0, column_tiles_at = 0;
    size_t largest_at = 0, sizes_at = 0, kept_at = 0;  // and the results.
  };
  struct Place {  // Of a task.
    size_t work = 0, index = 0;
    size_t payload_at = 0;  // Of what kernels write;
    size_t before = 0;      // so many bytes of the payload stand before it.
    size_t state_at = 0;    // Of the states, for kPowerSgd.
    float* left = nullptr;  // Where its residual goes.
  };

  // `tasks` outlive it.
  explicit Batch(absl::Span<const Task> tasks);

  const absl::Span<const Task> tasks;
  std::vector<Work> works;
  std::vector<Sample> samples;
  std::vector<Place> places;  // By task.
  std::vector<float> thresholds;
  Offsets inputs, results, payloads, states;
  size_t refused_at = 0, samples_at = 0;  // Of the results; samples are the last of them.
  size_t room = 0;                        // Bytes of it, which works use one after the other.

  const Coding& CodingOfTask(size_t task) const { return works[places[task].work].coding; }
  Chunk& ChunkOf(size_t task) { return works[places[task].work].chunks[places[task].index]; }

 private:
  Work& WorkOf(const Task& task);
  Sample& SampleOf(const Task& task);
  void Add(const Task& task, size_t index);
  void AddMatrix(const Task& task, Work* work, Place* place);
  void LayOut(Work* work);
};

// A work's room, at the beginning of `memory`; `*size`: how many bytes that takes.
Room RoomOf(const Batch::Work& work, const DeviceBuffer& memory, size_t* size);

}  // namespace sluice::compress::gpu
