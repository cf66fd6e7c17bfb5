// SPDX-License-Identifier: Apache-2.0
// Blocks of 256 codes of 2, 4 or 8 bits, distributed over a warp. Each lane has 8 elements, whose
// codes form whole, adjacent bytes. A block of c codes takes h = ceil(c b / 8) bytes. Code i is in
// byte i mod h and begins at bit b floor(i / h) (docs/wire-format.md).
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"

namespace sluice::compress::gpu {

inline constexpr uint32_t kCodeBlock = 256;
inline constexpr int kTileRounds = static_cast<int>(kTile / kCodeBlock) / (kTileThreads / kWarp);

constexpr uint32_t BlocksOf(uint32_t count) { return (count + kCodeBlock - 1) / kCodeBlock; }

// Returns the scale, rounded up to bf16 so that no value is clipped. Returns 0 below the smallest
// normal number.
constexpr uint16_t ScaleFor(float exact, uint16_t largest) {
  const uint32_t up = (std::bit_cast<uint32_t>(exact) + 0xFFFF) >> 16;
  return up < 0x80 ? uint16_t{0} : static_cast<uint16_t>(Min(up, uint32_t{largest}));
}

inline constexpr float kLargestFloat = std::bit_cast<float>(kInfinityBits - 1);

// Returns the largest bf16 scale for which `most` * scale is finite.
constexpr uint16_t LargestScale(float most) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(kLargestFloat / most) >> 16);
}

constexpr uint32_t CodeBytes(uint32_t count, int bits) {
  return (count * static_cast<uint32_t>(bits) + 7) / 8;
}

// Returns the first element of the block that a thread's warp handles in a round.
constexpr uint32_t BlockOf(const Tile& tile, int round, int thread) {
  return tile.first + (round * (kTileThreads / kWarp) + thread / kWarp) * kCodeBlock;
}

// The elements of a block that a lane handles.
template <int kBits>
struct Lane {
  static constexpr int kPlanes = kBits == 2 ? 4 : 2;
  static constexpr int kRun = 8 / kPlanes;

  Run<float, kRun> acc[kPlanes];
  int8_t codes[kPlanes][kRun];

  // Returns the index, within the block, of a lane's first element in a plane.
  static constexpr uint32_t At(int lane, int plane) {
    return plane * (kCodeBlock / kPlanes) + lane * kRun;
  }

  // Loads the elements. Returns the bits of the largest magnitude.
  template <class Gradient>
  constexpr uint32_t Load(const Chunk& chunk, uint32_t block, int lane) {
    uint32_t largest = 0;
    for (int plane = 0; plane < kPlanes; ++plane) {
      acc[plane] = LoadAcc<Gradient, kRun>(chunk, block + At(lane, plane));
      for (const float x : acc[plane].at) largest = Max(largest, MagnitudeBits(x));
    }
    return largest;
  }

  // Computes codes = round(acc / scale, index) and acc -= code * scale, and returns the largest
  // code. The arguments of `round` are a value that is already clamped to ±most, and the element's
  // index in the chunk.
  template <class RoundFn>
  constexpr uint32_t Quantize(uint32_t block, int lane, float scale, float inverse, float most,
                              RoundFn round) {
    uint32_t largest = 0;
    ForEach(block, lane, [&](float& x, int8_t& stored, uint32_t index) {
      const float exact = Clamp(x * inverse, -most, most);
      const int code = static_cast<int>(round(exact, index));
      x -= static_cast<float>(code) * scale;
      stored = static_cast<int8_t>(code);
      largest = Max(largest, static_cast<uint32_t>(code < 0 ? -code : code));
    });
    return largest;
  }

  // Calls fn(acc, code, index) for each element of the block that begins at `block`.
  template <class Fn>
  constexpr void ForEach(uint32_t block, int lane, Fn fn) {
    for (int plane = 0; plane < kPlanes; ++plane) {
      for (int i = 0; i < kRun; ++i) {
        fn(acc[plane].at[i], codes[plane][i], block + At(lane, plane) + i);
      }
    }
  }

  constexpr void NoCodes() {
    for (auto& plane : codes) {
      for (int8_t& code : plane) code = 0;
    }
  }

  constexpr void StoreLeft(const Chunk& chunk, uint32_t block, int lane) const {
    for (int plane = 0; plane < kPlanes; ++plane) {
      StoreResidual<kRun>(acc[plane], chunk, block + At(lane, plane));
    }
  }

  // Stores the codes of a whole block. `bytes` is the address of the block's first byte.
  constexpr void StoreCodes(uint8_t* bytes, int lane) const {
    constexpr int kMask = (1 << kBits) - 1;
    constexpr int kApart = 8 / kBits;  // Number of codes in a byte.
    for (int part = 0; part < kPlanes / kApart; ++part) {
      Run<uint8_t, kRun> packed;
      for (int i = 0; i < kRun; ++i) {
        int byte = 0;
        for (int j = 0; j < kApart; ++j)
          byte |= (codes[part * kApart + j][i] & kMask) << (j * kBits);
        packed.at[i] = static_cast<uint8_t>(byte);
      }
      const uint32_t at = At(lane, part * kApart);
      StoreRun<kRun>(packed, bytes, at, at + kRun);
    }
  }
  static_assert(8 / kBits <= kPlanes);

  // Copies the codes, in order, to a buffer for kCodeBlock codes. Used for incomplete blocks.
  constexpr void SpreadCodes(int8_t* all, int lane) const {
    for (int plane = 0; plane < kPlanes; ++plane) {
      for (int i = 0; i < kRun; ++i) all[At(lane, plane) + i] = codes[plane][i];
    }
  }
};

// Packs a lane's share of the bytes of a block whose `count` codes are in `all`.
template <int kBits>
constexpr void PackBytes(const int8_t* all, uint32_t count, int lane, uint8_t* bytes) {
  constexpr unsigned kMask = (1 << kBits) - 1;
  const uint32_t size = CodeBytes(count, kBits);
  for (uint32_t byte = lane; byte < size; byte += kWarp) {
    unsigned packed = 0;
    for (uint32_t i = byte, bit = 0; i < count; i += size, bit += kBits) {
      packed |= (static_cast<unsigned>(all[i]) & kMask) << bit;
    }
    bytes[byte] = static_cast<uint8_t>(packed);
  }
}

// Returns code i of a block of `count` codes.
template <int kBits>
constexpr int CodeAt(const uint8_t* bytes, uint32_t count, uint32_t i) {
  const uint32_t size = CodeBytes(count, kBits);
  const int code = bytes[i % size] >> (i / size * kBits) & ((1 << kBits) - 1);
  constexpr int kSign = 1 << (kBits - 1);
  return (code ^ kSign) - kSign;
}

// Returns the code of element `at` of a chunk. `codes` is the address of the codes of the chunk's
// first block.
template <int kBits>
constexpr int CodeOf(const Chunk& chunk, const uint8_t* codes, uint32_t at) {
  const uint32_t first = at / kCodeBlock * kCodeBlock;
  const uint32_t count = Min(kCodeBlock, chunk.count - first);
  return CodeAt<kBits>(codes + CodeBytes(first, kBits), count, at - first);
}

// Adds element `at` of a chunk, decoded with `scale`, to `sum`.
template <int kBits>
constexpr void AddCode(const Chunk& chunk, const uint8_t* codes, uint32_t at, float scale) {
  chunk.sum[at] += static_cast<float>(CodeOf<kBits>(chunk, codes, at)) * scale;
}

// Adds one sender's validated payloads to `sum` with Format::Add(chunk, at), for formats whose
// elements are independent.
template <class Format>
struct AddEach {
  static constexpr int kThreads = kTileThreads;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    ForEachRunOfTile<1>(block, chunks, tiles[index],
                        [&](const Chunk& chunk, uint32_t at) { Format::Add(chunk, at); });
  }
};

// The codes of a round's blocks. Only incomplete blocks use this shared memory.
struct CodeScratch {
  int8_t codes[kTileThreads / kWarp][kCodeBlock];
};

// Writes the codes of a round's blocks. `codes` is the address of the codes of the chunk's first
// block.
template <int kBits, class Block, class Lanes>
constexpr void StoreRound(Block& block, CodeScratch& scratch, const Chunk& chunk, const Tile& tile,
                          int round, uint8_t* codes, Lanes& lanes) {
  block.ForEach([&](int thread) {
    const uint32_t at = BlockOf(tile, round, thread);
    if (at >= chunk.count) return;
    lanes[thread].StoreLeft(chunk, at, thread % kWarp);
    if (at + kCodeBlock <= chunk.count) {
      lanes[thread].StoreCodes(codes + CodeBytes(at, kBits), thread % kWarp);
    } else {
      lanes[thread].SpreadCodes(scratch.codes[thread / kWarp], thread % kWarp);
    }
  });
  // Only a chunk's last block can be incomplete, so the other rounds need no Sync.
  if (BlockOf(tile, round, kTileThreads) <= chunk.count) return;
  block.Sync();
  block.ForEach([&](int thread) {
    const uint32_t at = BlockOf(tile, round, thread);
    if (at >= chunk.count || at + kCodeBlock <= chunk.count) return;
    PackBytes<kBits>(scratch.codes[thread / kWarp], chunk.count - at, thread % kWarp,
                     codes + CodeBytes(at, kBits));
  });
}

// Calls Coder::Encode(block, scratch, tile, chunk, round) for each round of a tile.
template <class Coder>
struct EncodeRounds {
  static constexpr int kThreads = kTileThreads;
  using Shared = CodeScratch;

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    for (int round = 0; round < kTileRounds; ++round) {
      Coder::Encode(block, shared, tile, chunk, round);
    }
  }
};

// Loads a round's blocks. Each thread gets the bits of the largest magnitude in its block.
template <class Gradient, class Block, class Lanes, class Each>
constexpr void LoadRound(Block& block, const Tile& tile, const Chunk& chunk, int round,
                         Lanes& lanes, Each& largest) {
  block.ForEach([&](int thread) {
    largest[thread] =
        lanes[thread].template Load<Gradient>(chunk, BlockOf(tile, round, thread), thread % kWarp);
  });
  block.MaxOfWarp(largest);
}

}  // namespace sluice::compress::gpu
