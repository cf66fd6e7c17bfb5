// SPDX-License-Identifier: Apache-2.0
// Codecs int8, int4 and int2, with either rounding, as in compress/codecs/linear.h. A warp handles
// a block of 256 elements, in one pass over memory. A payload has a bf16 scale per block, then the
// codes. Its address must be a multiple of 2; the kernels are faster if the address of the codes is
// a multiple of 4.
#pragma once

#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/codes.h"

namespace sluice::compress::gpu {

template <int kBits>
struct Linear {
  static constexpr int kMost = (1 << (kBits - 1)) - 1;
  static constexpr uint16_t kLargestScale = LargestScale(kMost);

  static constexpr uint32_t PayloadSize(uint32_t count) {
    return BlocksOf(count) * 2 + CodeBytes(count, kBits);
  }

  static constexpr void Add(const Chunk& chunk, uint32_t at) {
    const uint16_t scale = reinterpret_cast<const uint16_t*>(chunk.payload)[at / kCodeBlock];
    if (scale == 0) return;
    AddCode<kBits>(chunk, chunk.payload + 2 * BlocksOf(chunk.count), at, FromBfloat(scale));
  }
};

template <int kBits, class Gradient, bool kStochastic>
struct LinearCoder {
  template <class Block>
  static constexpr void Encode(Block& block, CodeScratch& scratch, const Tile& tile,
                               const Chunk& chunk, int round) {
    typename Block::template Each<Lane<kBits>> lanes;
    typename Block::template Each<uint32_t> largest, code;
    LoadRound<Gradient>(block, tile, chunk, round, lanes, largest);
    block.ForEach([&](int thread) {
      const uint16_t scale = ScaleOf(largest[thread]);
      code[thread] =
          Quantize(chunk, BlockOf(tile, round, thread), thread % kWarp, scale, &lanes[thread]);
    });
    // Random rounding may round all values of a block to zero.
    block.MaxOfWarp(code);
    block.ForEach([&](int thread) {
      const uint32_t at = BlockOf(tile, round, thread);
      if (thread % kWarp != 0 || at >= chunk.count) return;
      reinterpret_cast<uint16_t*>(chunk.payload)[at / kCodeBlock] =
          code[thread] == 0 ? uint16_t{0} : ScaleOf(largest[thread]);
    });
    StoreRound<kBits>(block, scratch, chunk, tile, round, chunk.payload + 2 * BlocksOf(chunk.count),
                      lanes);
  }

 private:
  static constexpr uint16_t ScaleOf(uint32_t largest) {
    return ScaleFor(std::bit_cast<float>(largest) / static_cast<float>(Linear<kBits>::kMost),
                    Linear<kBits>::kLargestScale);
  }

  static constexpr uint32_t Quantize(const Chunk& chunk, uint32_t at, int lane, uint16_t scale,
                                     Lane<kBits>* elements) {
    if (scale == 0) {
      elements->NoCodes();
      return 0;
    }
    const float step = FromBfloat(scale);
    const IndexedRandom random(chunk.own_key);
    return elements->Quantize(at, lane, step, 1 / step, static_cast<float>(Linear<kBits>::kMost),
                              [&](float exact, uint32_t i) {
                                return kStochastic ? RoundAtRandom(exact, random.At(i))
                                                   : Round(exact);
                              });
  }
};

template <int kBits, class Gradient, bool kStochastic>
using EncodeLinear = EncodeRounds<LinearCoder<kBits, Gradient, kStochastic>>;
template <int kBits>
using AddLinear = AddEach<Linear<kBits>>;

}  // namespace sluice::compress::gpu
