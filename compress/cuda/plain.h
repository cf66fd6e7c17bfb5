// Sums themselves: made 0, and floats as they are added to them.
#pragma once

#include "compress/cuda/block.h"
#include "compress/cuda/chunk.h"

namespace sluice::gpu {

struct ClearSum {
  static constexpr int kThreads = kTileThreads;
  static constexpr int kRun = 4;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    ForEachRunOfTile<kRun>(block, chunks, tiles[index], [&](const Chunk& chunk, uint32_t at) {
      StoreRun<kRun>(Run<float, kRun>{}, chunk.sum, at, chunk.count);
    });
  }
};

// Adds what lies where an encoder has the gradient: floats.
struct AddFloats {
  static constexpr int kThreads = kTileThreads;
  static constexpr int kRun = 4;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    ForEachRunOfTile<kRun>(block, chunks, tiles[index], [&](const Chunk& chunk, uint32_t at) {
      const auto run = LoadRun<kRun>(static_cast<const float*>(chunk.gradient), at, chunk.count);
      auto sum = LoadRun<kRun>(chunk.sum, at, chunk.count);
      for (int j = 0; j < kRun; ++j) sum.at[j] += run.at[j];
      StoreRun<kRun>(sum, chunk.sum, at, chunk.count);
    });
  }
};

}  // namespace sluice::gpu
