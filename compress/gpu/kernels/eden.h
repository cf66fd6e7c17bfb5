// SPDX-License-Identifier: Apache-2.0
// Codec eden, as in compress/codecs/eden.h. compress/simd/rotated_blocks.h defines the blocks and
// their offsets, for both the processor and the GPU. A block of threads handles the blocks of a
// tile one after another, in shared memory, in one pass over device memory.
#pragma once

#include <cmath>

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"
#include "compress/simd/rotated_blocks.h"

namespace sluice::compress::gpu {

struct RotationScratch {
  static constexpr int kWords = kRotatedMax / 64;

  float y[kRotatedMax];
  float q[kRotatedMax];
  uint64_t signs[2][kWords];
  float magnitudes[8];
  float sums[2][kSumLanes];
};

// One block of a chunk, beginning at element `at`, which all threads handle together. Each thread
// handles either kRun adjacent elements or none.
template <class Block>
class RotatedBlock {
 public:
  static constexpr int kRun = 4;
  static_assert(Block::kWarps * kWarp * kRun == kRotatedMax);

  constexpr RotatedBlock(Block& block, RotationScratch& scratch, uint32_t at, uint32_t size)
      : block_(block), scratch_(scratch), at_(at), size_(size) {}

  constexpr bool Has(int thread) const { return static_cast<uint32_t>(thread) * kRun < size_; }

  // Draws the signs and looks up the magnitudes. Call this first; a Sync must follow.
  constexpr void Prepare(int thread, uint64_t key, int bits) const {
    constexpr int kWords = RotationScratch::kWords;
    if (thread < 2 * kWords) {
      const int word = thread % kWords;
      scratch_.signs[thread / kWords][word] =
          RotationSigns(key, thread / kWords, at_ + static_cast<uint32_t>(word) * 64);
    }
    if (static_cast<uint32_t>(thread) < RotatedMagnitudesOf(bits)) {
      scratch_.magnitudes[thread] = RotatedMagnitude(bits, static_cast<uint32_t>(thread));
    }
  }

  constexpr float Flipped(int rotation, uint32_t i, float x) const {
    return (scratch_.signs[rotation][i / 64] >> (i % 64) & 1) != 0 ? -x : x;
  }
  // Multiplies x by `scale` and flips the signs. Ends with a Sync.
  constexpr void Flip(int rotation, float scale, float* x) const {
    block_.ForEach([&](int thread) {
      for (uint32_t i = thread * kRun; i < (thread + 1U) * kRun && i < size_; ++i) {
        x[i] = Flipped(rotation, i, x[i] * scale);
      }
    });
    block_.Sync();
  }

  // Transforms x in place, with two strides per pass. Ends with a Sync.
  constexpr void WalshHadamard(float* x) const {
    uint32_t h = 1;
    for (; 4 * h <= size_; h *= 4) {
      block_.ForEach([&](int thread) {
        if (!Has(thread)) return;
        const auto group = static_cast<uint32_t>(thread);
        float* const first = x + group / h * 4 * h + group % h;
        const float a = first[0], b = first[h], c = first[2 * h], d = first[3 * h];
        first[0] = (a + b) + (c + d);
        first[h] = (a - b) + (c - d);
        first[2 * h] = (a + b) - (c + d);
        first[3 * h] = (a - b) - (c - d);
      });
      block_.Sync();
    }
    if (h == size_) return;
    block_.ForEach([&](int thread) {
      if (static_cast<uint32_t>(thread) >= h) return;
      const float a = x[thread], b = x[thread + h];
      x[thread] = a + b;
      x[thread + h] = a - b;
    });
    block_.Sync();
  }

  // Computes the sums of first(i) and second(i) over the block. Call Sync before and after.
  template <class First, class Second>
  constexpr void AddUp(int thread, First first, Second second) const {
    const int lane = thread % kWarp;
    if (thread >= 2 * kWarp || lane >= kSumLanes) return;
    float sum = 0;
    // The first warp computes the first sum, and the second warp the second sum.
    for (uint32_t i = lane; i < size_; i += kSumLanes) sum += thread < kWarp ? first(i) : second(i);
    scratch_.sums[thread / kWarp][lane] = sum;
  }
  constexpr float Sum(int which) const { return SumOfLanes(scratch_.sums[which]); }

  // Sets each q to the magnitude nearest to |y| / `unit`, with the sign of y, and writes the codes
  // to `planes`. Each thread writes one byte of each plane. A Sync must follow.
  constexpr void Quantize(int thread, float unit, int bits, uint8_t* planes) const {
    const uint32_t bytes = size_ / 8;
    if (static_cast<uint32_t>(thread) >= bytes) return;
    const uint32_t magnitudes = RotatedMagnitudesOf(bits);
    uint32_t out[4] = {};
    for (uint32_t i = 0; i < 8; ++i) {
      const float y = scratch_.y[8 * thread + i];
      uint32_t index = 0;
      for (uint32_t k = 1; k < magnitudes; ++k) {
        // At and above this limit, the next magnitude is nearer.
        const float limit = (scratch_.magnitudes[k - 1] + scratch_.magnitudes[k]) * 0.5f * unit;
        index += Magnitude(y) >= limit ? 1 : 0;
      }
      const uint32_t negative = y < 0 ? 1 : 0;
      const float magnitude = scratch_.magnitudes[index];
      scratch_.q[8 * thread + i] = negative != 0 ? -magnitude : magnitude;
      const uint32_t code = negative | index << 1;
      for (int bit = 0; bit < bits; ++bit) out[bit] |= (code >> bit & 1) << i;
    }
    for (int bit = 0; bit < bits; ++bit) {
      planes[static_cast<uint32_t>(bit) * bytes + thread] = static_cast<uint8_t>(out[bit]);
    }
  }
  constexpr void ClearPlanes(int thread, int bits, uint8_t* planes) const {
    if (static_cast<uint32_t>(thread) >= size_ / 8) return;
    for (int bit = 0; bit < bits; ++bit) {
      planes[static_cast<uint32_t>(bit) * (size_ / 8) + thread] = 0;
    }
  }
  // Computes q from the planes; this is the inverse of Quantize. A Sync must follow.
  constexpr void Expand(int thread, int bits, const uint8_t* planes) const {
    const uint32_t bytes = size_ / 8;
    if (static_cast<uint32_t>(thread) >= bytes) return;
    for (uint32_t i = 0; i < 8; ++i) {
      uint32_t code = 0;
      for (int bit = 0; bit < bits; ++bit) {
        const uint32_t byte = planes[static_cast<uint32_t>(bit) * bytes + thread];
        code |= (byte >> i & 1) << bit;
      }
      const float magnitude = scratch_.magnitudes[code >> 1];
      scratch_.q[8 * thread + i] = (code & 1) != 0 ? -magnitude : magnitude;
    }
  }

 private:
  Block& block_;
  RotationScratch& scratch_;
  const uint32_t at_, size_;
};

// Calls fn(at, size) for each block of a tile.
template <class Fn>
constexpr void ForEachRotatedBlock(const Tile& tile, const Chunk& chunk, Fn fn) {
  uint32_t at = tile.first, size = 0;
  for (; at < tile.first + kTile && at < RotatedCount(chunk.count); at += size) {
    size = static_cast<uint32_t>(RotatedBlockSize(chunk.count - at));
    fn(at, size);
  }
}

// Calls fn(thread, at) for the elements of the chunk that are not rotated, if the tile has any.
template <class Block, class Fn>
constexpr void ForEachLeftOver(Block& block, const Tile& tile, const Chunk& chunk, Fn fn) {
  block.ForEach([&](int thread) {
    const auto at = static_cast<uint32_t>(RotatedCount(chunk.count)) + thread;
    if (at < chunk.count && at >= tile.first && at - tile.first < kTile) fn(thread, at);
  });
}

template <int kBits, class Gradient>
struct EncodeEden {
  static constexpr int kThreads = kTileThreads;
  using Shared = RotationScratch;

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    const RotatedPayload layout{chunk.count, kBits};
    ForEachRotatedBlock(tile, chunk, [&](uint32_t at, uint32_t size) {
      Encode(block, shared, chunk, layout, at, size);
    });
    ForEachLeftOver(block, tile, chunk, [&](int thread, uint32_t at) {
      const auto acc = LoadAcc<Gradient, 1>(chunk, at);
      StoreBytes<4>(std::bit_cast<uint32_t>(acc.at[0]),
                    chunk.payload + layout.RestAt() + 4 * static_cast<uint32_t>(thread));
      if (chunk.residual != nullptr) chunk.left[at] = 0;
    });
    if (tile.first > 0) return;
    block.ForEach([&](int thread) {
      if (thread > 0) return;
      StoreBytes<4>(static_cast<uint32_t>(chunk.own_key), chunk.payload);
      StoreBytes<4>(static_cast<uint32_t>(chunk.own_key >> 32), chunk.payload + 4);
      chunk.payload[RotatedPayload::kKeySize] =
          static_cast<uint8_t>(kBits | Rotations(chunk) << RotatedPayload::kRotationsShift);
    });
  }

 private:
  static constexpr int Rotations(const Chunk& chunk) { return chunk.residual != nullptr ? 1 : 2; }

  template <class Block>
  constexpr void Encode(Block& block, Shared& shared, const Chunk& chunk,
                        const RotatedPayload& layout, uint32_t at, uint32_t size) const {
    constexpr int kRun = RotatedBlock<Block>::kRun;
    const RotatedBlock<Block> rotated(block, shared, at, size);
    const bool feedback = Rotations(chunk) == 1;
    uint8_t* const planes = chunk.payload + layout.PlanesAt(at);
    typename Block::template Each<Run<float, kRun>> acc;
    typename Block::template Each<uint32_t> largest;
    block.Sync();
    block.ForEach([&](int thread) {
      rotated.Prepare(thread, chunk.own_key, kBits);
      largest[thread] = 0;
      if (!rotated.Has(thread)) return;
      acc[thread] = LoadAcc<Gradient, kRun>(chunk, at + thread * kRun);
      for (const float x : acc[thread].at) {
        largest[thread] = Max(largest[thread], MagnitudeBits(x));
      }
    });
    const float normalizer = PowerThatNormalizes(block.Max(largest));
    block.ForEach([&](int thread) {
      if (!rotated.Has(thread)) return;
      for (int i = 0; i < kRun; ++i) shared.y[thread * kRun + i] = acc[thread].at[i];
    });
    rotated.Flip(0, normalizer, shared.y);
    const auto y_squared = [&](uint32_t i) { return shared.y[i] * shared.y[i]; };
    const auto none = [](uint32_t) { return 0.0f; };
    block.ForEach([&](int thread) { rotated.AddUp(thread, y_squared, none); });
    block.Sync();
    const float energy = rotated.Sum(0);
    rotated.WalshHadamard(shared.y);
    if (!feedback) {
      rotated.Flip(1, 1 / static_cast<float>(size), shared.y);
      rotated.WalshHadamard(shared.y);
    }
    const float variance = feedback ? energy : energy / static_cast<float>(size);
    const float unit = std::sqrt(variance) * 0x1p-8f;
    block.ForEach([&](int thread) { rotated.Quantize(thread, unit, kBits, planes); });
    block.Sync();
    block.ForEach([&](int thread) {
      rotated.AddUp(
          thread, [&](uint32_t i) { return Magnitude(shared.y[i]) * Magnitude(shared.q[i]); },
          [&](uint32_t i) { return shared.q[i] * shared.q[i]; });
    });
    block.Sync();
    const RotatedSums sums{rotated.Sum(0), rotated.Sum(1)};
    const float scale = RotatedScale(sums, energy, normalizer, size, !feedback);
    block.ForEach([&](int thread) {
      if (thread == 0) StoreShortFloat(scale, chunk.payload + layout.ScaleAt(at));
      if (scale == 0) rotated.ClearPlanes(thread, kBits, planes);
    });
    if (!feedback) return;
    if (scale != 0) rotated.WalshHadamard(shared.q);
    block.ForEach([&](int thread) {
      if (!rotated.Has(thread)) return;
      for (int i = 0; i < kRun && scale != 0; ++i) {
        const uint32_t element = thread * kRun + i;
        acc[thread].at[i] += rotated.Flipped(0, element, shared.q[element] * -scale);
      }
      StoreResidual<kRun>(acc[thread], chunk, at + thread * kRun);
    });
  }
};

struct AddRotated {
  static constexpr int kThreads = kTileThreads;
  using Shared = RotationScratch;

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    const auto key = LoadBytes<uint64_t>(chunk.payload);
    const int how = chunk.payload[RotatedPayload::kKeySize];
    const int rotations = how >> RotatedPayload::kRotationsShift;
    const RotatedPayload layout{chunk.count, how - (rotations << RotatedPayload::kRotationsShift)};
    ForEachRotatedBlock(tile, chunk, [&](uint32_t at, uint32_t size) {
      const float scale = LoadShortFloat(chunk.payload + layout.ScaleAt(at));
      if (scale == 0) return;
      const RotatedBlock<Block> rotated(block, shared, at, size);
      block.Sync();
      block.ForEach([&](int thread) { rotated.Prepare(thread, key, layout.bits); });
      block.Sync();
      block.ForEach([&](int thread) {
        rotated.Expand(thread, layout.bits, chunk.payload + layout.PlanesAt(at));
      });
      block.Sync();
      rotated.WalshHadamard(shared.q);
      if (rotations == 2) {
        rotated.Flip(1, 1, shared.q);
        rotated.WalshHadamard(shared.q);
      }
      block.ForEach([&](int thread) {
        for (uint32_t i = thread; i < size; i += kThreads) {
          chunk.sum[at + i] += rotated.Flipped(0, i, shared.q[i] * scale);
        }
      });
    });
    ForEachLeftOver(block, tile, chunk, [&](int thread, uint32_t at) {
      const uint8_t* const rest = chunk.payload + layout.RestAt();
      chunk.sum[at] +=
          std::bit_cast<float>(LoadBytes<uint32_t>(rest + 4 * static_cast<uint32_t>(thread)));
    });
  }
};

}  // namespace sluice::compress::gpu
