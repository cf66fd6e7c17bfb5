// SPDX-License-Identifier: Apache-2.0
// ClearSum: sets sums to 0.
#pragma once

#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"

namespace sluice::compress::gpu {

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

}  // namespace sluice::compress::gpu
