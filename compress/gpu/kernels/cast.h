// SPDX-License-Identifier: Apache-2.0
// Codec none, and codecs fp16 and bf16 as in compress/codecs/half.h. A payload has 2 or 4 bytes per
// element. Its address must be a multiple of that size. The kernels are faster if it is a multiple
// of four times that size.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"
#include "compress/gpu/kernels/short_float.h"

namespace sluice::compress::gpu {

struct ToFp16 {
  using Code = uint16_t;
  static constexpr uint16_t Encode(float x) { return ToHalf(x); }
  static constexpr uint16_t EncodeAtRandom(float x, uint32_t draw) {
    const uint32_t half = ShortFloat<10, 15, 0x7BFF>::EncodeAtRandom(x, draw);
    return static_cast<uint16_t>(half | (std::bit_cast<uint32_t>(x) & kSignBit) >> 16);
  }
  static constexpr float Decode(uint16_t code) { return FromHalf(code); }
};

struct ToBf16 {
  using Code = uint16_t;
  static constexpr uint16_t Encode(float x) { return ToBfloat(x); }
  static constexpr uint16_t EncodeAtRandom(float x, uint32_t draw) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & ~kSignBit;
    const uint32_t code = Min((magnitude + (draw & 0xFFFF)) >> 16, uint32_t{0x7F7F});
    return static_cast<uint16_t>(code | (bits & kSignBit) >> 16);
  }
  static constexpr float Decode(uint16_t code) { return FromBfloat(code); }
};

struct ToFp32 {
  using Code = float;
  static constexpr float Encode(float x) { return x; }
  static constexpr float Decode(float code) { return code; }
};

template <class Format, class Gradient, bool kStochastic>
struct EncodeCast {
  static constexpr int kThreads = kTileThreads;
  static constexpr int kRun = 4;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    ForEachRunOfTile<kRun>(block, chunks, tiles[index], [&](const Chunk& chunk, uint32_t at) {
      const IndexedRandom random(chunk.own_key);
      auto acc = LoadAcc<Gradient, kRun, !kStochastic>(chunk, at);
      Run<typename Format::Code, kRun> run;
      for (int j = 0; j < kRun; ++j) {
        if constexpr (kStochastic) {
          run.at[j] = Format::EncodeAtRandom(acc.at[j], random.At(at + j));
        } else {
          run.at[j] = Format::Encode(acc.at[j]);
        }
        acc.at[j] -= Format::Decode(run.at[j]);
      }
      StoreRun<kRun>(run, reinterpret_cast<typename Format::Code*>(chunk.payload), at, chunk.count);
      StoreResidual<kRun>(acc, chunk, at);
    });
  }
};

// Adds a chunk's payload to `sum`.
template <class Format>
struct AddCast {
  static constexpr int kThreads = kTileThreads;
  static constexpr int kRun = 4;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    ForEachRunOfTile<kRun>(block, chunks, tiles[index], [&](const Chunk& chunk, uint32_t at) {
      const auto* const codes = reinterpret_cast<const typename Format::Code*>(chunk.payload);
      const auto run = LoadRun<kRun>(codes, at, chunk.count);
      auto sum = LoadRun<kRun>(chunk.sum, at, chunk.count);
      for (int j = 0; j < kRun; ++j) sum.at[j] += Format::Decode(run.at[j]);
      StoreRun<kRun>(sum, chunk.sum, at, chunk.count);
    });
  }
};

}  // namespace sluice::compress::gpu
