// SPDX-License-Identifier: Apache-2.0
// Codec intsum:b, as in compress/codecs/intsum.h. Shards add its codes as integers. The kernel
// makes one pass over memory. A payload has one byte, two bytes per block, then the codes. The
// kernel is faster if the address of the codes is a multiple of 4.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/linear.h"

namespace sluice::compress::gpu {

template <int kBits>
struct IntSum {
  static constexpr int kMost = (1 << (kBits - 1)) - 1;
  static constexpr int kExponentMax = kBits == 8 ? 248 : kBits == 4 ? 252 : 253;

  static constexpr uint32_t PayloadSize(uint32_t count) {
    return 1 + 2 * BlocksOf(count) + CodeBytes(count, kBits);
  }

  // Returns the smallest exponent that does not clip a value with these bits.
  static constexpr uint8_t ExponentFor(uint32_t largest) {
    if (largest == 0) return 0;
    const int field = static_cast<int>(largest >> 23) - (kBits - 2);
    int exponent = field < 1 ? 1 : field > kExponentMax ? kExponentMax : field;
    const float reach =
        static_cast<float>(kMost) * std::bit_cast<float>(static_cast<uint32_t>(exponent) << 23);
    if (std::bit_cast<float>(largest) > reach) ++exponent;
    return static_cast<uint8_t>(exponent < kExponentMax ? exponent : kExponentMax);
  }

  static constexpr void Add(const Chunk& chunk, uint32_t at) {
    const uint8_t exponent = chunk.payload[1 + at / kCodeBlock];
    if (exponent == 0) return;
    AddCode<kBits>(chunk, chunk.payload + 1 + 2 * BlocksOf(chunk.count), at,
                   std::bit_cast<float>(uint32_t{exponent} << 23));
  }
};

template <int kBits, class Gradient>
struct EncodeIntSum {
  static constexpr int kThreads = kTileThreads;
  using Shared = CodeScratch;

  const Chunk* chunks;
  const Tile* tiles;
  // Exponents for the blocks of all chunks, as in the codec's state. 0 if a block has none yet.
  const float* exponents;
  // For each chunk, the result of the kernel Largest. Null if all exponents are known.
  const uint32_t* largest;

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    const uint8_t first =
        largest == nullptr ? uint8_t{0} : IntSum<kBits>::ExponentFor(largest[tile.chunk]);
    for (int round = 0; round < kTileRounds; ++round) {
      Encode(block, shared, tile, chunk, round, first);
    }
  }

 private:
  template <class Block>
  constexpr void Encode(Block& block, Shared& shared, const Tile& tile, const Chunk& chunk,
                        int round, uint8_t first) const {
    const uint32_t blocks = BlocksOf(chunk.count);
    typename Block::template Each<Lane<kBits>> lanes;
    typename Block::template Each<uint32_t> most;
    block.ForEach([&](int thread) {
      const uint32_t at = BlockOf(tile, round, thread);
      most[thread] = 0;
      if (at >= chunk.count) return;
      most[thread] = lanes[thread].template Load<Gradient>(chunk, at, thread % kWarp);
      // With exponent 0, all values are zero, so any scale is correct.
      const uint32_t used = Max(Used(chunk, at, first), uint8_t{1});
      lanes[thread].Quantize(at, thread % kWarp, std::bit_cast<float>(used << 23),
                             std::bit_cast<float>((254 - used) << 23),
                             static_cast<float>(IntSum<kBits>::kMost),
                             [](float exact, uint32_t) { return Round(exact); });
    });
    block.MaxOfWarp(most);
    block.ForEach([&](int thread) {
      const uint32_t at = BlockOf(tile, round, thread);
      if (thread % kWarp != 0 || at >= chunk.count) return;
      if (at == 0) chunk.payload[0] = kBits;
      chunk.payload[1 + at / kCodeBlock] = Used(chunk, at, first);
      chunk.payload[1 + blocks + at / kCodeBlock] = IntSum<kBits>::ExponentFor(most[thread]);
    });
    StoreRound<kBits>(block, shared, chunk, tile, round, chunk.payload + 1 + 2 * blocks, lanes);
  }

  constexpr uint8_t Used(const Chunk& chunk, uint32_t at, uint8_t first) const {
    const float shared = exponents[chunk.first_block + at / kCodeBlock];
    if (!(shared >= 1)) return first;
    constexpr auto kLimit = static_cast<float>(IntSum<kBits>::kExponentMax);
    return static_cast<uint8_t>(shared < kLimit ? shared : kLimit);
  }
};

template <int kBits>
using AddIntSum = AddEach<IntSum<kBits>>;

}  // namespace sluice::compress::gpu
