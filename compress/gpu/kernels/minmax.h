// SPDX-License-Identifier: Apache-2.0
// Codecs int8:minmax and int4:minmax, with either rounding, as in compress/codecs/linear.h. A warp
// handles a block of 256 elements, in one pass over memory. A payload has a byte with the number of
// bits per code, the least value and the scale of each block in bf16, then the codes. The payload
// may be at any address; the kernels are faster if the address of the codes is a multiple of 4.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/codes.h"

namespace sluice::compress::gpu {

// Maps finite floats to integers in the same order. -0 becomes a smaller integer than 0.
constexpr uint32_t OrderOf(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return (bits & kSignBit) != 0 ? ~bits : bits | kSignBit;
}
constexpr float FromOrder(uint32_t order) {
  return std::bit_cast<float>((order & kSignBit) != 0 ? order & ~kSignBit : ~order);
}

// Rounds to a bf16 that is not above x.
constexpr uint16_t BfloatBelow(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0xFFFF) == 0 || (bits & kSignBit) == 0) return static_cast<uint16_t>(bits >> 16);
  return static_cast<uint16_t>(Min((bits >> 16) + 1, uint32_t{0xFF7F}));
}

template <int kBits>
struct MinMax {
  static constexpr int kMask = (1 << kBits) - 1;
  static constexpr auto kMost = static_cast<float>(kMask);

  struct Levels {
    uint16_t least, scale;
  };

  // Returns the levels of a block whose values range from `least` to `largest`.
  static constexpr Levels LevelsOf(float least, float largest) {
    constexpr float kLimit = kLargestFloat / 2;
    // Adding 0.0f turns either zero into the positive zero.
    Levels levels = {BfloatBelow((least < -kLimit ? -kLimit : least) + 0.0f), 0};
    const float reach = (largest > kLimit ? kLimit : largest) - FromBfloat(levels.least);
    if (reach > 0) levels.scale = ScaleFor(reach / kMost, LargestScale(kMost));
    if (levels.scale == 0 && least < 0 && least < largest) levels.least = 0;
    return levels;
  }

  static constexpr uint8_t* LevelsAt(const Chunk& chunk, uint32_t at) {
    return chunk.payload + 1 + 4 * (at / kCodeBlock);
  }
  static constexpr uint8_t* Codes(const Chunk& chunk) {
    return chunk.payload + 1 + 4 * BlocksOf(chunk.count);
  }

  static constexpr void Add(const Chunk& chunk, uint32_t at) {
    const uint8_t* const levels = LevelsAt(chunk, at);
    const auto code = static_cast<float>(CodeOf<kBits>(chunk, Codes(chunk), at) & kMask);
    chunk.sum[at] += FromBfloat(LoadBytes<uint16_t>(levels)) +
                     code * FromBfloat(LoadBytes<uint16_t>(levels + 2));
  }
};

template <int kBits, class Gradient, bool kStochastic>
struct MinMaxCoder {
  template <class Block>
  static constexpr void Encode(Block& block, CodeScratch& scratch, const Tile& tile,
                               const Chunk& chunk, int round) {
    typename Block::template Each<Lane<kBits>> lanes;
    // Values are mapped to integers in the same order. The complement of the least value is stored,
    // so that both results are maxima.
    typename Block::template Each<uint32_t> largest, least;
    block.ForEach([&](int thread) {
      const uint32_t first = BlockOf(tile, round, thread);
      lanes[thread].template Load<Gradient>(chunk, first, thread % kWarp);
      largest[thread] = least[thread] = 0;
      lanes[thread].ForEach(first, thread % kWarp, [&](float x, const int8_t&, uint32_t i) {
        if (i >= chunk.count) return;
        largest[thread] = Max(largest[thread], OrderOf(x));
        least[thread] = Max(least[thread], ~OrderOf(x));
      });
    });
    block.MaxOfWarp(largest);
    block.MaxOfWarp(least);
    block.ForEach([&](int thread) {
      const uint32_t at = BlockOf(tile, round, thread);
      if (at >= chunk.count) return;
      const auto levels =
          MinMax<kBits>::LevelsOf(FromOrder(~least[thread]), FromOrder(largest[thread]));
      Quantize(chunk, at, thread % kWarp, FromBfloat(levels.least), FromBfloat(levels.scale),
               &lanes[thread]);
      if (thread % kWarp != 0) return;
      if (at == 0) chunk.payload[0] = kBits;
      StoreBytes<2>(levels.least, MinMax<kBits>::LevelsAt(chunk, at));
      StoreBytes<2>(levels.scale, MinMax<kBits>::LevelsAt(chunk, at) + 2);
    });
    StoreRound<kBits>(block, scratch, chunk, tile, round, MinMax<kBits>::Codes(chunk), lanes);
  }

 private:
  static constexpr void Quantize(const Chunk& chunk, uint32_t at, int lane, float least,
                                 float scale, Lane<kBits>* elements) {
    const float inverse = scale == 0 ? 0 : 1 / scale;
    const IndexedRandom random(chunk.own_key);
    elements->ForEach(at, lane, [&](float& x, int8_t& stored, uint32_t i) {
      const float exact = Clamp((x - least) * inverse, 0, MinMax<kBits>::kMost);
      const float code = kStochastic ? RoundAtRandom(exact, random.At(i)) : Round(exact);
      x -= least + code * scale;
      stored = static_cast<int8_t>(static_cast<int>(code));
    });
  }
};

template <int kBits, class Gradient, bool kStochastic>
using EncodeMinMax = EncodeRounds<MinMaxCoder<kBits, Gradient, kStochastic>>;
template <int kBits>
using AddMinMax = AddEach<MinMax<kBits>>;

}  // namespace sluice::compress::gpu
