// Codec natural, as compress/codecs/natural.h has it. A warp has a block of 512 elements: one pass
// over memory writes each block's smallest exponent and its width and notes codes; then PackNatural
// writes their planes one block after the other. Payload at any address.
#pragma once

#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"
#include "compress/gpu/kernels/plane_blocks.h"

namespace sluice::compress::gpu {

// Where things are in a payload.
struct NaturalLayout {
  constexpr explicit NaturalLayout(const Chunk& of) : chunk(of), blocks(PlaneBlocks(of.count)) {}

  constexpr uint8_t* Smallest(uint32_t block) const { return chunk.payload + block; }
  constexpr uint8_t* Width(uint32_t block) const { return chunk.payload + blocks + block; }
  constexpr uint32_t Planes(uint32_t block) const {
    const uint32_t width = *Width(block);
    return width == 0 ? 0 : 1 + width;
  }

  // Where the planes begin of `block`, which comes after `before` planes up to the block `first`;
  // all blocks but the last are whole.
  constexpr uint8_t* PlanesOf(uint32_t block, uint32_t first, uint32_t before) const {
    for (uint32_t i = first; i < block; ++i) before += Planes(i);
    return chunk.payload + 2 * blocks + before * (kPlaneBlock / 8);
  }
  // How many planes the blocks before `first` have. Includes a Sync.
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
  // A warp for each block of a tile.
  static constexpr int kThreads = kTileThreads;
  static_assert(kTile / kPlaneBlock * kWarp == kThreads);
  static constexpr int kRun = 4;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;
  uint16_t* codes;  // Of all chunks' elements: exponents, and the sign in bit 8.

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    // Of exponents above 0 the largest, and what the smallest lacks of 255: both are maxima.
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
          largest[thread] = std::max(largest[thread], level);
          lacking[thread] = std::max(lacking[thread], level == 0 ? 0 : 255 - level);
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
      *layout.Width(first / kPlaneBlock) = static_cast<uint8_t>(std::bit_width(span));
    });
  }

 private:
  static constexpr uint32_t FirstOf(const Tile& tile, int thread) {
    return tile.first + thread / kWarp * kPlaneBlock;
  }

  // The carry out of the mantissa has the probability that keeps the mean.
  static constexpr uint16_t Encode(uint32_t draw, float* acc) {
    const uint32_t level = std::min((MagnitudeBits(*acc) + (draw >> 9)) >> 23, uint32_t{254});
    const uint16_t code = PlaneCode(level, *acc);
    // Moved up, the sign is where floats have it.
    *acc -= std::bit_cast<float>(uint32_t{code} << 23);
    return code;
  }
};

struct PackNatural {
  static constexpr int kThreads = kTileThreads;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;
  const uint16_t* codes;  // As EncodeNatural has them.
  uint32_t* sizes;        // Of each chunk's payload, in bytes.

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

// Adds a chunk's payload, which was validated, to `sum`.
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
