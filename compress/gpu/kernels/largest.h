// SPDX-License-Identifier: Apache-2.0
// Largest: computes the bits of the largest |acc| of each chunk. Values that are not finite count
// as 0. With kAccumulate, the kernel also writes acc to the residual.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"

namespace sluice::compress::gpu {

template <class Gradient, bool kAccumulate = false>
struct Largest {
  static constexpr int kThreads = kTileThreads;
  static constexpr int kRun = 4;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;
  uint32_t* largest;  // One per chunk. Must be 0 before the launch.

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    typename Block::template Each<uint32_t> most;
    block.ForEach([&](int thread) {
      most[thread] = 0;
      for (uint32_t at = thread * kRun; at < kTile; at += kThreads * kRun) {
        const auto acc = LoadAcc<Gradient, kRun>(chunk, tile.first + at);
        if (kAccumulate) StoreResidual<kRun>(acc, chunk, tile.first + at);
        for (const float x : acc.at) most[thread] = Max(most[thread], MagnitudeBits(x));
      }
    });
    const uint32_t total = block.Max(most);
    block.ForEach([&](int thread) {
      if (thread == 0) block.AtomicMax(largest + tile.chunk, total);
    });
  }
};

}  // namespace sluice::compress::gpu
