// Codec natural, as compress/natural.h has it. A warp has a block of 512 elements: one pass over
// memory writes each block's smallest exponent and its width and notes codes; then PackNatural
// writes their planes one block after the other. Payload at any address.
#pragma once

#include "compress/cuda/block.h"
#include "compress/cuda/chunk.h"

namespace sluice::gpu {

inline constexpr uint32_t kPlaneBlock = 512;

// Where things are in a payload.
struct NaturalLayout {
  constexpr explicit NaturalLayout(const Chunk& of)
      : chunk(of), blocks((of.count + kPlaneBlock - 1) / kPlaneBlock) {}

  constexpr uint8_t* Smallest(uint32_t block) const { return chunk.payload + block; }
  constexpr uint8_t* Width(uint32_t block) const { return chunk.payload + blocks + block; }
  constexpr uint32_t Planes(uint32_t block) const {
    const uint32_t width = *Width(block);
    return width == 0 ? 0 : 1 + width;
  }
  constexpr uint32_t PlaneBytes(uint32_t block) const {
    return (std::min(kPlaneBlock, chunk.count - block * kPlaneBlock) + 7) / 8;
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
    const uint32_t sign = level == 0 ? 0 : std::bit_cast<uint32_t>(*acc) & kSignBit;
    *acc -= std::bit_cast<float>(level << 23 | sign);
    return static_cast<uint16_t>(level | sign >> 23);
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
        Pack(layout, own, LoadRun<8>(codes + chunk.first_element, at, chunk.count),
             layout.PlanesOf(own, first, before) + at % kPlaneBlock / 8);
      });
      if (thread != 0 || tile.first + kTile < chunk.count) return;
      const uint32_t last = layout.blocks - 1;
      const uint8_t* const end =
          layout.PlanesOf(last, first, before) + layout.Planes(last) * layout.PlaneBytes(last);
      sizes[tile.chunk] = static_cast<uint32_t>(end - chunk.payload);
    });
  }

 private:
  // A byte of each plane of a block.
  static constexpr void Pack(const NaturalLayout& layout, uint32_t block,
                             const Run<uint16_t, 8>& run, uint8_t* out) {
    const uint32_t planes = layout.Planes(block), base = *layout.Smallest(block) - 1;
    for (uint32_t plane = 0; plane < planes; ++plane) {
      uint32_t byte = 0;
      for (int i = 0; i < 8; ++i) {
        const uint32_t level = run.at[i] & 0xFF;
        const uint32_t bit = level == 0   ? 0
                             : plane == 0 ? uint32_t{run.at[i]} >> 8
                                          : (level - base) >> (plane - 1);
        byte |= (bit & 1) << i;
      }
      out[plane * layout.PlaneBytes(block)] = static_cast<uint8_t>(byte);
    }
  }
};

// Adds a chunk's payload, which was validated, to `residual`, which stands for the sum here.
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
        chunk.residual[at] += Value(layout, own, layout.PlanesOf(own, first, before), at);
      });
    });
  }

 private:
  static constexpr float Value(const NaturalLayout& layout, uint32_t block, const uint8_t* planes,
                               uint32_t at) {
    const uint32_t i = at % kPlaneBlock;
    const auto bit = [&](uint32_t plane) {
      return uint32_t{planes[plane * layout.PlaneBytes(block) + i / 8]} >> (i % 8) & 1;
    };
    uint32_t offset = 0;
    for (uint32_t plane = 1; plane < layout.Planes(block); ++plane) {
      offset |= bit(plane) << (plane - 1);
    }
    const uint32_t level = offset == 0 ? 0 : offset + *layout.Smallest(block) - 1;
    return std::bit_cast<float>(level << 23 | bit(0) << 31);
  }
};

}  // namespace sluice::gpu
