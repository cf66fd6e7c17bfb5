// SPDX-License-Identifier: Apache-2.0
// Codec qsgd, as in compress/codecs/qsgd.h. A warp handles a block of 512 elements, in one pass
// over memory. A payload has a byte with the number of bits per code, a bf16 step per block, then
// the planes of each block. The payload may be at any address.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/codes.h"
#include "compress/gpu/kernels/plane_blocks.h"

namespace sluice::compress::gpu {

template <int kBits>
struct Qsgd {
  static constexpr auto kMost = static_cast<float>((1 << (kBits - 1)) - 1);

  static constexpr uint8_t* Step(const Chunk& chunk, uint32_t at) {
    return chunk.payload + 1 + 2 * (at / kPlaneBlock);
  }
  // Returns the address of the planes of the block that contains element `at`. All earlier blocks
  // are complete.
  static constexpr uint8_t* Planes(const Chunk& chunk, uint32_t at) {
    return chunk.payload + 1 + 2 * PlaneBlocks(chunk.count) +
           at / kPlaneBlock * (kBits * kPlaneBlock / 8);
  }

  static constexpr void Add(const Chunk& chunk, uint32_t at) {
    const uint32_t code = CodeOfPlanes(Planes(chunk, at), kBits, PlaneBytes(chunk.count, at), at);
    const float step = FromBfloat(LoadBytes<uint16_t>(Step(chunk, at)));
    chunk.sum[at] += Value(code, step);
  }
  static constexpr float Value(uint32_t code, float step) {
    const float size = static_cast<float>(code & kLevelMask) * step;
    return code > kLevelMask ? -size : size;
  }
};

template <int kBits, class Gradient>
struct EncodeQsgd {
  // One warp for each block of a tile.
  static constexpr int kThreads = kTileThreads;
  static_assert(kTile / kPlaneBlock * kWarp == kThreads);
  static constexpr int kRun = 8;  // These elements fill a byte of each plane.
  static constexpr int kRuns = kPlaneBlock / kWarp / kRun;
  struct Shared {};
  struct Elements {
    Run<float, kRun> acc[kRuns];
  };

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    typename Block::template Each<Elements> elements;
    typename Block::template Each<uint32_t> largest;
    const auto at = [&](int thread, int run) {
      return tile.first + thread / kWarp * kPlaneBlock + (run * kWarp + thread % kWarp) * kRun;
    };
    block.ForEach([&](int thread) {
      largest[thread] = 0;
      Unrolled<kRuns>([&](int run) {
        auto& acc = elements[thread].acc[run];
        acc = LoadAcc<Gradient, kRun>(chunk, at(thread, run));
        for (const float x : acc.at) largest[thread] = Max(largest[thread], MagnitudeBits(x));
      });
    });
    block.MaxOfWarp(largest);
    block.ForEach([&](int thread) {
      constexpr float kMost = Qsgd<kBits>::kMost;
      const uint16_t step =
          ScaleFor(std::bit_cast<float>(largest[thread]) / kMost, LargestScale(kMost));
      Unrolled<kRuns>([&](int run) {
        const uint32_t first = at(thread, run);
        if (first >= chunk.count) return;
        if (first == 0) chunk.payload[0] = kBits;
        if (first % kPlaneBlock == 0) StoreBytes<2>(step, Qsgd<kBits>::Step(chunk, first));
        Write(chunk, first, FromBfloat(step), &elements[thread].acc[run]);
      });
    });
  }

 private:
  static constexpr void Write(const Chunk& chunk, uint32_t first, float step,
                              Run<float, kRun>* acc) {
    const float inverse = step == 0 ? 0 : 1 / step;
    const IndexedRandom random(chunk.own_key);
    Run<uint16_t, kRun> codes;
    for (int j = 0; j < kRun; ++j) {
      float& x = acc->at[j];
      const float exact = Min(Magnitude(x) * inverse, Qsgd<kBits>::kMost);
      const auto level = static_cast<uint32_t>(RoundAtRandom(exact, random.At(first + j)));
      codes.at[j] = PlaneCode(level, x);
      x -= Qsgd<kBits>::Value(codes.at[j], step);
    }
    StoreResidual<kRun>(*acc, chunk, first);
    PackPlanes(codes, 0, kBits, PlaneBytes(chunk.count, first),
               Qsgd<kBits>::Planes(chunk, first) + first % kPlaneBlock / 8);
  }
};

template <int kBits>
using AddQsgd = AddEach<Qsgd<kBits>>;

}  // namespace sluice::compress::gpu
