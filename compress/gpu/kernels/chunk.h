// What kernels are told of the tensors' chunks that one launch encodes: all chunks of a launch lie
// in one array, and so do the tiles that they are cut into, one for each block of threads. So a
// step's tensors take a few launches, however many they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/gpu/kernels/numbers.h"

namespace sluice::compress::gpu {

// Elements that a block of threads encodes; a multiple of every codec's block.
inline constexpr uint32_t kTile = 4096;
inline constexpr int kTileThreads = 256;

// A chunk's buffers, all on the device. Whoever launches owns them until the kernel has run.
struct Chunk {
  const void* gradient = nullptr;   // Of the type that the kernel's Gradient says.
  const float* residual = nullptr;  // Null: none is kept, and nothing is added to the gradient.
  // With a residual: becomes acc - decoded. It may lie where the residual does; elsewhere, a chunk
  // that is refused keeps the residual that it had.
  float* left = nullptr;
  float* sum = nullptr;         // What kernels that add add to.
  uint32_t* refused = nullptr;  // Unless null: becomes 1 where an acc is not finite.
  float scale = 1;              // What the gradient is multiplied by as it is read.
  uint32_t count = 0;           // Elements.
  // Where its blocks of 256 begin in arrays of all chunks' blocks; a multiple of 4, so that the
  // same number divided by 4 serves blocks of 1,024.
  uint32_t first_block = 0;
  uint32_t first_element = 0;  // Likewise its elements' slots.
  uint64_t own_key = 0;
  uint64_t shared_key = 0;
  uint8_t* payload = nullptr;  // What the encoder writes, or is added up.
};

struct Tile {
  uint32_t chunk;
  uint32_t first;  // Element of the chunk.
};

// Those of a chunk with `count` elements, or whatever it is cut by, each of at most `size`.
inline void AppendTiles(uint32_t chunk, uint32_t count, uint32_t size, std::vector<Tile>* tiles) {
  for (uint32_t at = 0; at < count; at += size) tiles->push_back({chunk, at});
}
// Of chunks by their elements.
inline std::vector<Tile> MakeTiles(const std::vector<Chunk>& chunks) {
  std::vector<Tile> tiles;
  for (uint32_t i = 0; i < chunks.size(); ++i) AppendTiles(i, chunks[i].count, kTile, &tiles);
  return tiles;
}

// A chunk as a matrix, row by row, and the factors of some rank; both lie column by column.
inline constexpr uint32_t kTileRows = 16;      // Of such tiles a block of threads has a row for
inline constexpr uint32_t kTileColumns = 256;  // each of 16 threads, or a column for each.
struct LowRankMatrix {
  uint32_t rows = 0;
  uint32_t columns = 0;
  float* p = nullptr;  // Room for the factor with a number for each row.
  float* q = nullptr;  // The other one: of the last step, becomes that of the next.
};

// fn(at) for a thread's runs of kRun elements of a tile, `at` the first of each; the chunk's last
// one may end within it.
template <int kRun, class Fn>
constexpr void ForEachRun(const Tile& tile, const Chunk& chunk, int thread, Fn fn) {
  for (uint32_t i = thread * kRun; i < kTile && tile.first + i < chunk.count;
       i += kTileThreads * kRun) {
    fn(tile.first + i);
  }
}

// The same with fn(chunk, at) for all threads of a block: what a kernel does whose elements stand
// for themselves.
template <int kRun, class Block, class Fn>
constexpr void ForEachRunOfTile(Block& block, const Chunk* chunks, const Tile& tile, Fn fn) {
  const Chunk chunk = chunks[tile.chunk];
  block.ForEach([&](int thread) {
    ForEachRun<kRun>(tile, chunk, thread, [&](uint32_t at) { fn(chunk, at); });
  });
}

// Gradients of different types; none needs an fp32 copy in memory.
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

// So many elements that one instruction moves.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Run {
  T at[kCount];
};

template <class T, int kCount>
constexpr bool IsAligned(const T* at) {
  return reinterpret_cast<uintptr_t>(at) % sizeof(Run<T, kCount>) == 0;
}

// kCount elements from `at` on, zeros from `end` on.
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

// acc of kCount elements from `at` on; zeros after the chunk's end, and in place of what is not
// finite. With kExact a gradient without a residual is taken as it is; else a zero loses its sign,
// as where a residual of zeros is added.
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

// The lowest kBytes bytes of a value, the lowest first.
template <int kBytes>
constexpr void StoreBytes(uint32_t value, uint8_t* at) {
  for (int i = 0; i < kBytes; ++i) at[i] = static_cast<uint8_t>(value >> (8 * i));
}

// A float by its upper 3 bytes.
constexpr float LoadShortFloat(const uint8_t* at) {
  return std::bit_cast<float>(uint32_t{at[0]} << 8 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 24);
}
constexpr void StoreShortFloat(float value, uint8_t* at) {
  StoreBytes<3>(std::bit_cast<uint32_t>(value) >> 8, at);
}

}  // namespace sluice::compress::gpu
