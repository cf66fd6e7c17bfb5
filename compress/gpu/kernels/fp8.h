// SPDX-License-Identifier: Apache-2.0
// Codec fp8, with either rounding, as in compress/codecs/fp8.h. A warp handles a block of 256
// elements, in one pass over memory. A payload has a byte for the format, a bf16 scale per block,
// then the codes. The payload may be at any address; the kernels are faster if the address of the
// codes is a multiple of 4.
#pragma once

#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/codes.h"
#include "compress/gpu/kernels/short_float.h"

namespace sluice::compress::gpu {

using E4m3 = ShortFloat<3, 7, 0x7E>;
using E5m2 = ShortFloat<2, 15, 0x7B>;

template <class Format>
struct Fp8 {
  static constexpr uint8_t kVariant = Format::kLargestCode == E5m2::kLargestCode ? 1 : 0;
  static constexpr float kLargest = Format::Decode(Format::kLargestCode);
  static constexpr uint16_t kLargestScale = LargestScale(kLargest);

  // Addresses of the parts of a payload.
  static constexpr uint8_t* Scale(const Chunk& chunk, uint32_t at) {
    return chunk.payload + 1 + 2 * (at / kCodeBlock);
  }
  static constexpr uint8_t* Codes(const Chunk& chunk) {
    return chunk.payload + 1 + 2 * BlocksOf(chunk.count);
  }
  // Decodes a code with its sign.
  static constexpr float Decode(uint32_t code) {
    const float size = Format::Decode(code & 0x7F);
    return code >= 0x80 ? -size : size;
  }
  static constexpr void Add(const Chunk& chunk, uint32_t at) {
    const auto scale = LoadBytes<uint16_t>(Scale(chunk, at));
    if (scale == 0) return;
    chunk.sum[at] += Decode(Codes(chunk)[at]) * FromBfloat(scale);
  }
};

template <class Format, class Gradient, bool kStochastic>
struct Fp8Coder {
  template <class Block>
  static constexpr void Encode(Block& block, CodeScratch& scratch, const Tile& tile,
                               const Chunk& chunk, int round) {
    typename Block::template Each<Lane<8>> lanes;
    typename Block::template Each<uint32_t> largest;
    LoadRound<Gradient>(block, tile, chunk, round, lanes, largest);
    block.ForEach([&](int thread) {
      const uint32_t at = BlockOf(tile, round, thread);
      const uint16_t scale = ScaleFor(std::bit_cast<float>(largest[thread]) / Fp8<Format>::kLargest,
                                      Fp8<Format>::kLargestScale);
      Quantize(chunk, at, thread % kWarp, scale, &lanes[thread]);
      if (thread % kWarp != 0 || at >= chunk.count) return;
      if (at == 0) chunk.payload[0] = Fp8<Format>::kVariant;
      StoreBytes<2>(scale, Fp8<Format>::Scale(chunk, at));
    });
    StoreRound<8>(block, scratch, chunk, tile, round, Fp8<Format>::Codes(chunk), lanes);
  }

 private:
  static constexpr void Quantize(const Chunk& chunk, uint32_t at, int lane, uint16_t scale,
                                 Lane<8>* elements) {
    if (scale == 0) {
      elements->NoCodes();
      return;
    }
    const float step = FromBfloat(scale), inverse = 1 / step;
    const IndexedRandom random(chunk.own_key);
    elements->ForEach(at, lane, [&](float& x, int8_t& stored, uint32_t i) {
      const float scaled = x * inverse;
      const uint32_t size =
          kStochastic ? Format::EncodeAtRandom(scaled, random.At(i)) : Format::Encode(scaled);
      const uint32_t code = size | (std::bit_cast<uint32_t>(x) & kSignBit) >> 24;
      x -= Fp8<Format>::Decode(code) * step;
      stored = static_cast<int8_t>(code);
    });
  }
};

template <class Format, class Gradient, bool kStochastic>
using EncodeFp8 = EncodeRounds<Fp8Coder<Format, Gradient, kStochastic>>;
template <class Format>
using AddFp8 = AddEach<Fp8<Format>>;

}  // namespace sluice::compress::gpu
