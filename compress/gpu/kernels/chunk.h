// SPDX-License-Identifier: Apache-2.0
// The input of kernels: the chunks that one launch encodes. All chunks of a launch are in one
// array, and the tiles of all chunks are in another. Each block of threads handles one tile.
// Therefore a step takes a few launches for any number of tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "compress/gpu/kernels/numbers.h"

namespace sluice::compress::gpu {

// Number of elements that a block of threads encodes. It is a multiple of every codec's block size.
inline constexpr uint32_t kTile = 4096;
inline constexpr int kTileThreads = 256;

// A chunk's buffers, all on the device. The caller of the launch owns the buffers and must keep
// them until the kernel has finished.
struct Chunk {
  // The elements have the type that the kernel's Gradient defines.
  const void* gradient = nullptr;
  // Null if the chunk keeps no residual. The kernel then encodes the gradient alone.
  const float* residual = nullptr;
  // Receives acc - decoded if there is a residual. `left` may be the same memory as `residual`. If
  // it is separate memory, a refused chunk keeps its old residual.
  float* left = nullptr;
  // The sum that kernels add to.
  float* sum = nullptr;
  // The kernel sets this to 1 if an element of acc is not finite. May be null.
  uint32_t* refused = nullptr;
  // Factor that multiplies each element of the gradient when it is read.
  float scale = 1;
  uint32_t count = 0;  // Number of elements.
  // Index of the chunk's first block of 256 elements in arrays over the blocks of all chunks. The
  // index is a multiple of 4, so that a quarter of it is the index for blocks of 1,024.
  uint32_t first_block = 0;
  // Index of the chunk's first element in arrays over the elements of all chunks.
  uint32_t first_element = 0;
  uint64_t own_key = 0;
  uint64_t shared_key = 0;
  // The output of an encoder, or the input of kernels that add.
  uint8_t* payload = nullptr;
};

struct Tile {
  uint32_t chunk;
  uint32_t first;  // The tile's first element within the chunk.
};

// Appends the tiles of a chunk that is cut along `count` elements, rows or columns. A tile has at
// most `size` of these.
inline void AppendTiles(uint32_t chunk, uint32_t count, uint32_t size, std::vector<Tile>* tiles) {
  for (uint32_t at = 0; at < count; at += size) tiles->push_back({chunk, at});
}
// Returns the tiles of chunks that are cut along their elements.
inline std::vector<Tile> MakeTiles(const std::vector<Chunk>& chunks) {
  std::vector<Tile> tiles;
  for (uint32_t i = 0; i < chunks.size(); ++i) AppendTiles(i, chunks[i].count, kTile, &tiles);
  return tiles;
}

// Number of rows of a tile. A block of threads has 16 threads for each row.
inline constexpr uint32_t kTileRows = 16;
// Number of columns of a tile. A block of threads has one thread for each column.
inline constexpr uint32_t kTileColumns = 256;
// A chunk as a matrix, stored row by row, and its factors, stored column by column.
struct LowRankMatrix {
  uint32_t rows = 0;
  uint32_t columns = 0;
  // Buffer for the factor with one number per row.
  float* p = nullptr;
  // The other factor: first the result of the last step, then the result for the next step.
  float* q = nullptr;
};

// Calls fn(0), fn(1), ..., fn(kCount - 1) without a loop. An array that is indexed by the argument
// stays in registers.
template <int kCount, class Fn>
constexpr void Unrolled(Fn fn) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) { (fn(kIndex), ...); }
  (std::make_integer_sequence<int, kCount>{});
}

// Calls fn(at) for each run of kRun elements of a tile that belongs to a thread; `at` is the first
// element of the run. The chunk's last run may be incomplete.
template <int kRun, class Fn>
constexpr void ForEachRun(const Tile& tile, const Chunk& chunk, int thread, Fn fn) {
  for (uint32_t i = thread * kRun; i < kTile && tile.first + i < chunk.count;
       i += kTileThreads * kRun) {
    fn(tile.first + i);
  }
}

// Calls fn(chunk, at) for the runs of all threads of a block, for kernels whose elements are
// independent.
template <int kRun, class Block, class Fn>
constexpr void ForEachRunOfTile(Block& block, const Chunk* chunks, const Tile& tile, Fn fn) {
  const Chunk chunk = chunks[tile.chunk];
  block.ForEach([&](int thread) {
    ForEachRun<kRun>(tile, chunk, thread, [&](uint32_t at) { fn(chunk, at); });
  });
}

// Element types of gradients. Gradients of each type are read without an fp32 copy in memory.
struct Fp32 {
  using Stored = float;
  static constexpr float Widen(float x) { return x; }
};
struct Fp16 {
  using Stored = uint16_t;
  static constexpr float Widen(uint16_t x) { return WidenHalf(x); }
};
struct Bf16 {
  using Stored = uint16_t;
  static constexpr float Widen(uint16_t x) { return FromBfloat(x); }
};

// A group of elements that one instruction loads or stores.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Run {
  T at[kCount];
};

template <class T, int kCount>
constexpr bool IsAligned(const T* at) {
  return reinterpret_cast<uintptr_t>(at) % sizeof(Run<T, kCount>) == 0;
}

// Loads kCount elements, beginning at `at`. Elements from `end` on become zeros.
template <int kCount, class T>
constexpr Run<T, kCount> LoadRun(const T* values, uint32_t at, uint32_t end) {
  if (at + kCount <= end && IsAligned<T, kCount>(values + at)) {
    return *reinterpret_cast<const Run<T, kCount>*>(values + at);
  }
  Run<T, kCount> run{};
  for (int i = 0; i < kCount; ++i) {
    if (at + i < end) run.at[i] = values[at + i];
  }
  return run;
}

template <int kCount, class T>
constexpr void StoreRun(const Run<T, kCount>& run, T* values, uint32_t at, uint32_t end) {
  if (at + kCount <= end && IsAligned<T, kCount>(values + at)) {
    *reinterpret_cast<Run<T, kCount>*>(values + at) = run;
    return;
  }
  for (int i = 0; i < kCount; ++i) {
    if (at + i < end) values[at + i] = run.at[i];
  }
}

// Loads acc for kCount elements, beginning at `at`. Elements after the chunk's end and values that
// are not finite become zeros. With kExact, a gradient without a residual is unchanged. Otherwise a
// negative zero loses its sign, as it does when a residual of zeros is added.
template <class Gradient, int kCount, bool kExact = false>
constexpr Run<float, kCount> LoadAcc(const Chunk& chunk, uint32_t at) {
  using Stored = typename Gradient::Stored;
  const auto raw = LoadRun<kCount>(static_cast<const Stored*>(chunk.gradient), at, chunk.count);
  Run<float, kCount> acc{};
  if (chunk.residual != nullptr) acc = LoadRun<kCount>(chunk.residual, at, chunk.count);
  bool finite = true;
  for (int i = 0; i < kCount; ++i) {
    const float gradient = Gradient::Widen(raw.at[i]) * chunk.scale;
    acc.at[i] = kExact && chunk.residual == nullptr ? gradient : gradient + acc.at[i];
    if (IsFinite(acc.at[i])) continue;
    finite = false;
    acc.at[i] = 0;
  }
  if (!finite && chunk.refused != nullptr) *chunk.refused = 1;
  return acc;
}

template <int kCount>
constexpr void StoreResidual(const Run<float, kCount>& left, const Chunk& chunk, uint32_t at) {
  if (chunk.residual != nullptr) StoreRun<kCount>(left, chunk.left, at, chunk.count);
}

template <class T>
constexpr T LoadBytes(const uint8_t* at) {
  T value = 0;
  for (unsigned i = 0; i < sizeof(T); ++i) value |= static_cast<T>(T{at[i]} << (8 * i));
  return value;
}

// Stores the lowest kBytes bytes of a value, lowest byte first.
template <int kBytes>
constexpr void StoreBytes(uint32_t value, uint8_t* at) {
  for (int i = 0; i < kBytes; ++i) at[i] = static_cast<uint8_t>(value >> (8 * i));
}

// Loads the upper 3 bytes of a float.
constexpr float LoadShortFloat(const uint8_t* at) {
  return std::bit_cast<float>(uint32_t{at[0]} << 8 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 24);
}
constexpr void StoreShortFloat(float value, uint8_t* at) {
  StoreBytes<3>(std::bit_cast<uint32_t>(value) >> 8, at);
}

}  // namespace sluice::compress::gpu
