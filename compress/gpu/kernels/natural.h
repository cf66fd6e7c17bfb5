// SPDX-License-Identifier: Apache-2.0
// Codec natural, as in compress/codecs/natural.h. A warp handles a block of 512 elements. One pass
// over memory stores the codes and the smallest exponent and the width of each block. PackNatural
// then writes the planes of all blocks, one after another. The payload may be at any address.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"
#include "compress/gpu/kernels/plane_blocks.h"

namespace sluice::compress::gpu {

// Addresses of the parts of a payload.
struct NaturalLayout {
  constexpr explicit NaturalLayout(const Chunk& of) : chunk(of), blocks(PlaneBlocks(of.count)) {}

  constexpr uint8_t* Smallest(uint32_t block) const { return chunk.payload + block; }
  constexpr uint8_t* Width(uint32_t block) const { return chunk.payload + blocks + block; }
  constexpr uint32_t Planes(uint32_t block) const {
    const uint32_t width = *Width(block);
    return width == 0 ? 0 : 1 + width;
  }

  // Returns the address of the planes of `block`. `before` is the number of planes of the blocks
  // before `first`. All blocks except the last are complete.
  constexpr uint8_t* PlanesOf(uint32_t block, uint32_t first, uint32_t before) const {
    for (uint32_t i = first; i < block; ++i) before += Planes(i);
    return chunk.payload + 2 * blocks + before * (kPlaneBlock / 8);
  }
  // Returns the number of planes of the blocks before `first`. Includes a Sync.
  template <class Block>
  constexpr uint32_t PlanesBefore(Block& block, uint32_t first) const {
    typename Block::template Each<uint32_t> planes;
    block.ForEach([&](int thread) {
      planes[thread] = 0;
      for (uint32_t i = thread; i < first; i += kTileThreads) planes[thread] += Planes(i);
    });
    return block.ExclusiveSum(planes);
  }

  const Chunk& chunk;
  const uint32_t blocks;
};

template <class Gradient>
struct EncodeNatural {
  // One warp for each block of a tile.
  static constexpr int kThreads = kTileThreads;
  static_assert(kTile / kPlaneBlock * kWarp == kThreads);
  static constexpr int kRun = 4;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;
  // For the elements of all chunks: exponents, with the sign in bit 8.
  uint16_t* codes;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    // The largest exponent above 0, and 255 minus the smallest exponent, so that both are maxima.
    typename Block::template Each<uint32_t> largest, lacking;
    block.ForEach([&](int thread) {
      largest[thread] = lacking[thread] = 0;
      const uint32_t first = FirstOf(tile, thread);
      for (uint32_t i = thread % kWarp * kRun; i < kPlaneBlock; i += kWarp * kRun) {
        if (first + i >= chunk.count) break;
        auto acc = LoadAcc<Gradient, kRun>(chunk, first + i);
        Run<uint16_t, kRun> run;
        for (int j = 0; j < kRun; ++j) {
          run.at[j] = Encode(IndexedRandom(chunk.own_key).At(first + i + j), &acc.at[j]);
          const uint32_t level = run.at[j] & 0xFF;
          largest[thread] = Max(largest[thread], level);
          lacking[thread] = Max(lacking[thread], level == 0 ? 0 : 255 - level);
        }
        StoreRun<kRun>(run, codes + chunk.first_element, first + i, chunk.count);
        StoreResidual<kRun>(acc, chunk, first + i);
      }
    });
    block.MaxOfWarp(largest);
    block.MaxOfWarp(lacking);
    block.ForEach([&](int thread) {
      const uint32_t first = FirstOf(tile, thread);
      if (thread % kWarp != 0 || first >= chunk.count) return;
      const NaturalLayout layout(chunk);
      const uint32_t smallest = lacking[thread] == 0 ? 0 : 255 - lacking[thread];
      const uint32_t span = smallest == 0 ? 0 : largest[thread] - smallest + 1;
      *layout.Smallest(first / kPlaneBlock) = static_cast<uint8_t>(smallest);
      *layout.Width(first / kPlaneBlock) = static_cast<uint8_t>(BitWidth(span));
    });
  }

 private:
  static constexpr uint32_t FirstOf(const Tile& tile, int thread) {
    return tile.first + thread / kWarp * kPlaneBlock;
  }

  // The probability of a carry out of the mantissa preserves the mean.
  static constexpr uint16_t Encode(uint32_t draw, float* acc) {
    const uint32_t level = Min((MagnitudeBits(*acc) + (draw >> 9)) >> 23, uint32_t{254});
    const uint16_t code = PlaneCode(level, *acc);
    // The shift moves the sign to its place in a float.
    *acc -= std::bit_cast<float>(uint32_t{code} << 23);
    return code;
  }
};

struct PackNatural {
  static constexpr int kThreads = kTileThreads;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;
  const uint16_t* codes;  // The output of EncodeNatural.
  uint32_t* sizes;        // Size of each chunk's payload in bytes.

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    const NaturalLayout layout(chunk);
    const uint32_t first = tile.first / kPlaneBlock;
    const uint32_t before = layout.PlanesBefore(block, first);
    block.ForEach([&](int thread) {
      ForEachRun<8>(tile, chunk, thread, [&](uint32_t at) {
        const uint32_t own = at / kPlaneBlock;
        PackPlanes(LoadRun<8>(codes + chunk.first_element, at, chunk.count),
                   *layout.Smallest(own) - 1u, layout.Planes(own), PlaneBytes(chunk.count, at),
                   layout.PlanesOf(own, first, before) + at % kPlaneBlock / 8);
      });
      if (thread != 0 || tile.first + kTile < chunk.count) return;
      const uint32_t last = layout.blocks - 1;
      const uint8_t* const end = layout.PlanesOf(last, first, before) +
                                 layout.Planes(last) * PlaneBytes(chunk.count, chunk.count - 1);
      sizes[tile.chunk] = static_cast<uint32_t>(end - chunk.payload);
    });
  }
};

// Adds a chunk's validated payload to `sum`.
struct AddNatural {
  static constexpr int kThreads = kTileThreads;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    const NaturalLayout layout(chunk);
    const uint32_t first = tile.first / kPlaneBlock;
    const uint32_t before = layout.PlanesBefore(block, first);
    block.ForEach([&](int thread) {
      ForEachRun<1>(tile, chunk, thread, [&](uint32_t at) {
        const uint32_t own = at / kPlaneBlock;
        if (layout.Planes(own) == 0) return;
        chunk.sum[at] += Value(layout, own, layout.PlanesOf(own, first, before), at);
      });
    });
  }

 private:
  static constexpr float Value(const NaturalLayout& layout, uint32_t block, const uint8_t* planes,
                               uint32_t at) {
    const uint32_t code =
        CodeOfPlanes(planes, layout.Planes(block), PlaneBytes(layout.chunk.count, at), at);
    const uint32_t offset = code & kLevelMask;
    const uint32_t level = offset == 0 ? 0 : offset + *layout.Smallest(block) - 1;
    return std::bit_cast<float>((level | (code & ~kLevelMask)) << 23);
  }
};

}  // namespace sluice::compress::gpu
