// SPDX-License-Identifier: Apache-2.0
// Codecs sign, onebit and signsgd, as in compress/codecs/sign.h. A warp handles a block of 1,024
// elements. One pass over memory writes the scales and signs to the payload and records the zeros.
// Then FinishSign, with a block of threads per chunk, writes the marks and the necessary planes of
// zeros.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"
#include "compress/gpu/kernels/scan.h"

namespace sluice::compress::gpu {

inline constexpr uint32_t kSignElements = 1024;
inline constexpr uint32_t kSignWords = kSignElements / kWarp;

enum class SignMeans {
  // sign: ± the mean magnitude of the values that are not 0.
  kOne,
  // onebit: the mean of the values above 0, or of the values below 0.
  kTwo,
  kNone,  // signsgd: ±1.
};

// Offsets in a payload. The payload's address must be a multiple of 2.
struct SignLayout {
  constexpr SignLayout(uint32_t elements, SignMeans means)
      : count(elements),
        blocks((elements + kSignElements - 1) / kSignElements),
        scales(means == SignMeans::kTwo ? 2 : 1),
        marks_at(2 * scales * blocks),
        signs_at(marks_at + (blocks + 7) / 8),
        zeros_at(signs_at + (elements + 7) / 8) {}

  constexpr uint32_t Elements(uint32_t block) const {
    return Min(kSignElements, count - block * kSignElements);
  }

  uint32_t count, blocks, scales, marks_at, signs_at, zeros_at;
};

template <class Gradient, SignMeans kMeans>
struct EncodeSign {
  // One warp for each block of a tile.
  static constexpr int kThreads = static_cast<int>(kTile / kSignElements) * kWarp;
  static constexpr int kLanes = 16;
  struct Shared {
    float acc[kThreads / kWarp][kSignElements];
    double above[kThreads / kWarp][kLanes], below[kThreads / kWarp][kLanes];
  };

  const Chunk* chunks;
  const Tile* tiles;
  // For each block of 1,024 elements of all chunks: kSignWords words of zeros, and the number of
  // zeros. A chunk's first entry has the index Chunk::first_block / 4, which is a multiple of 4.
  uint32_t* zeros;
  uint32_t* zero_counts;

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    const auto first = [&](int thread) { return tile.first + thread / kWarp * kSignElements; };
    block.ForEach([&](int thread) {
      constexpr int kRun = 4;
      float* const acc = shared.acc[thread / kWarp];
      for (uint32_t i = thread % kWarp * kRun; i < kSignElements; i += kWarp * kRun) {
        const auto run = LoadAcc<Gradient, kRun>(chunk, first(thread) + i);
        for (int j = 0; j < kRun; ++j) acc[i + j] = run.at[j];
      }
    });
    block.Sync();
    block.ForEach([&](int thread) {
      if (thread % kWarp < kLanes) Sum(shared, thread / kWarp, thread % kWarp);
    });
    typename Block::template Each<Means> means;
    block.Sync();
    // For each lane, a word for 32 adjacent elements.
    typename Block::template Each<uint32_t> negative, zero;
    for (uint32_t word = 0; word < kSignWords; ++word) {
      typename Block::template Each<uint32_t> below, none;
      block.ForEach([&](int thread) {
        const float x = shared.acc[thread / kWarp][word * kWarp + thread % kWarp];
        below[thread] = x < 0 ? 1 : 0;
        none[thread] = x == 0 ? 1 : 0;
      });
      block.Ballot(below);
      block.Ballot(none);
      block.ForEach([&](int thread) {
        if (word == 0) means[thread] = {};
        means[thread].negatives += static_cast<uint32_t>(PopCount(below[thread]));
        means[thread].zeros += static_cast<uint32_t>(PopCount(none[thread]));
        means[thread].odd_zeros += static_cast<uint32_t>(PopCount(none[thread] & kOddPositions));
        if (static_cast<uint32_t>(thread % kWarp) != word) return;
        negative[thread] = below[thread];
        zero[thread] = none[thread];
      });
    }
    block.ForEach([&](int thread) {
      if (first(thread) >= chunk.count) return;
      SignTheZeros(chunk, first(thread), &means[thread]);
      Find(shared, thread / kWarp, &means[thread]);
      Write(chunk, shared, first(thread), thread, means[thread], negative[thread], zero[thread]);
    });
  }

 private:
  static constexpr uint32_t kOddPositions = 0xAAAAAAAA;
  struct Means {
    uint32_t negatives = 0, zeros = 0;
    uint32_t odd_zeros = 0;  // Zeros at odd positions.
    uint16_t above = 0, below = 0;
    bool no_zeros = false;  // Only the padding of the last block remains zero.
  };

  // Adds element i to lane i mod 16, in order. Elements that do not count add 0.
  static constexpr void Sum(Shared& shared, int warp, int lane) {
    double above = 0, below = 0;
    for (uint32_t i = lane; i < kSignElements; i += kLanes) {
      const float x = shared.acc[warp][i];
      if constexpr (kMeans == SignMeans::kOne) {
        above += double{Magnitude(x)};
      } else {
        above += x > 0 ? double{x} : 0.0;
        below += x < 0 ? double{-x} : 0.0;
      }
    }
    shared.above[warp][lane] = above;
    shared.below[warp][lane] = below;
  }

  static constexpr uint16_t MeanOf(const double (&lanes)[kLanes], uint32_t count) {
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return count == 0 ? uint16_t{0} : ToBfloat(static_cast<float>(sum / double(count)));
  }

  // As SignZeros::kAlternate for sign and SignZeros::kPositive for onebit (compress/simd/sign.h).
  static constexpr void SignTheZeros(const Chunk& chunk, uint32_t first, Means* means) {
    if (kMeans == SignMeans::kNone || chunk.residual == nullptr) return;
    const uint32_t elements = Min(kSignElements, chunk.count - first);
    const uint32_t zeros = means->zeros - (kSignElements - elements);
    means->no_zeros = zeros > 0 && 2 * zeros <= elements;
    if (!means->no_zeros) return;
    means->zeros -= zeros;
    // The padding is zero, too, and half of all positions are odd.
    if constexpr (kMeans == SignMeans::kOne) {
      means->negatives += means->odd_zeros - (kSignElements / 2 - elements / 2);
    }
  }

  static constexpr void Find(const Shared& shared, int warp, Means* means) {
    const uint32_t above = kSignElements - means->negatives - means->zeros;
    if constexpr (kMeans == SignMeans::kNone) {
      means->above = means->below = above + means->negatives > 0 ? 0x3F80 : 0;
    } else if constexpr (kMeans == SignMeans::kOne) {
      means->above = means->below = MeanOf(shared.above[warp], above + means->negatives);
    } else {
      means->above = MeanOf(shared.above[warp], above);
      means->below = MeanOf(shared.below[warp], means->negatives);
    }
    // Values that would decode to 0 are recorded as zeros.
    if (means->below == 0) {
      means->zeros += means->negatives;
      means->negatives = 0;
    }
    if (means->above == 0) means->zeros = kSignElements - means->negatives;
  }

  constexpr void Write(const Chunk& chunk, const Shared& shared, uint32_t first, int thread,
                       const Means& means, uint32_t negative, uint32_t zero) const {
    const SignLayout layout(chunk.count, kMeans);
    const uint32_t block = first / kSignElements, lane = thread % kWarp;
    const uint32_t begin = first + lane * kWarp;
    const uint32_t bits = begin >= chunk.count ? 0 : Min(chunk.count - begin, uint32_t{32});
    const uint32_t real = bits == 32 ? ~uint32_t{0} : (uint32_t{1} << bits) - 1;
    const bool alternate = means.no_zeros && kMeans == SignMeans::kOne;
    if (alternate) negative |= zero & real & kOddPositions;
    if (means.no_zeros) zero = 0;
    if (means.below == 0) {
      zero |= negative;
      negative = 0;
    }
    if (means.above == 0) zero |= ~negative;
    uint8_t* const signs = chunk.payload + layout.signs_at + begin / 8;
    for (uint32_t i = 0; 8 * i < bits; ++i) signs[i] = static_cast<uint8_t>(negative >> (8 * i));
    const uint32_t of_all = chunk.first_block / 4 + block;
    zeros[of_all * kSignWords + lane] = zero & real;
    if (lane == 0) {
      // The padding of the last block does not belong to the chunk.
      zero_counts[of_all] = means.zeros - (kSignElements - layout.Elements(block));
      auto* const scales = reinterpret_cast<uint16_t*>(chunk.payload);
      scales[block * layout.scales] = means.above;
      if (layout.scales == 2) scales[block * 2 + 1] = means.below;
    }
    if (chunk.residual == nullptr) return;
    const float above = FromBfloat(means.above), below = FromBfloat(means.below);
    for (uint32_t i = lane; i < kSignElements && first + i < chunk.count; i += kWarp) {
      const float x = shared.acc[thread / kWarp][i];
      const bool is_negative = x < 0 || (alternate && x == 0 && i % 2 == 1);
      chunk.left[first + i] = x == 0 && !means.no_zeros ? x - 0.0f
                              : is_negative             ? x - -below
                                                        : x - above;
    }
  }
};

template <SignMeans kMeans>
struct FinishSign {
  static constexpr int kThreads = 256;
  struct Shared {};

  const Chunk* chunks;
  const uint32_t* zeros;  // The output of EncodeSign.
  const uint32_t* zero_counts;
  uint32_t* sizes;  // Size of each chunk's payload in bytes.

  // Block `index` handles chunk `index`.
  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const SignLayout layout(chunk.count, kMeans);
    const uint32_t base = chunk.first_block / 4;
    uint32_t at = layout.zeros_at;
    for (uint32_t first = 0; first < layout.blocks; first += kThreads) {
      typename Block::template Each<uint32_t> size;
      block.ForEach([&](int thread) {
        const uint32_t i = first + thread;
        const uint32_t marked = Marked(layout, base, i);
        size[thread] = marked != 0 ? (layout.Elements(i) + 7) / 8 : 0;
        // Each of these threads writes the marks of eight blocks.
        if (i % 8 != 0 || i >= layout.blocks) return;
        unsigned marks = 0;
        for (uint32_t j = 0; j < 8; ++j) marks |= Marked(layout, base, i + j) << j;
        chunk.payload[layout.marks_at + i / 8] = static_cast<uint8_t>(marks);
      });
      const uint32_t all = block.ExclusiveSum(size);
      block.ForEach([&](int thread) {
        const uint32_t i = first + thread;
        if (Marked(layout, base, i) == 0) return;
        const uint32_t* const words = zeros + (base + i) * kSignWords;
        uint8_t* const plane = chunk.payload + at + size[thread];
        for (uint32_t byte = 0; 8 * byte < layout.Elements(i); ++byte) {
          plane[byte] = static_cast<uint8_t>(words[byte / 4] >> (byte % 4 * 8));
        }
      });
      at += all;
    }
    block.ForEach([&](int thread) {
      if (thread == 0) sizes[index] = at;
    });
  }

 private:
  // Returns 1 if the block has both zeros and other values, and otherwise 0.
  constexpr uint32_t Marked(const SignLayout& layout, uint32_t base, uint32_t block) const {
    if (block >= layout.blocks) return 0;
    const uint32_t count = zero_counts[base + block];
    return count != 0 && count != layout.Elements(block) ? 1 : 0;
  }
};

// Adds a chunk's validated payload to `sum`.
template <SignMeans kMeans>
struct AddSign {
  static constexpr int kThreads = kTileThreads;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    const SignLayout layout(chunk.count, kMeans);
    const uint32_t first = tile.first / kSignElements;
    const uint8_t* const marks = chunk.payload + layout.marks_at;
    // Number of planes of zeros in the earlier blocks, all of which are complete.
    const uint32_t before = SumOf(block, (first + 31) / 32, [&](uint32_t i) {
      return static_cast<uint32_t>(PopCount(MarksOf(marks, 32 * i, Min(first - 32 * i, 32u))));
    });
    // One bit for each block of the tile.
    const uint32_t own = MarksOf(marks, first, Min(layout.blocks - first, kTile / kSignElements));
    block.ForEach([&](int thread) {
      ForEachRun<1>(tile, chunk, thread,
                    [&](uint32_t at) { chunk.sum[at] += Value(chunk, layout, own, before, at); });
    });
  }

 private:
  // Returns the marks of `count` (1 to 32) blocks. The first block is `first`, which must be a
  // multiple of 4. Only the bytes of these marks are read.
  static constexpr uint32_t MarksOf(const uint8_t* marks, uint32_t first, uint32_t count) {
    uint64_t bits = 0;
    for (uint32_t i = first / 8; 8 * i < first + count; ++i) {
      bits |= uint64_t{marks[i]} << (i - first / 8) * 8;
    }
    return static_cast<uint32_t>(bits >> first % 8 & ((uint64_t{1} << count) - 1));
  }
  static constexpr uint32_t Bit(const uint8_t* bits, uint32_t i) {
    return uint32_t{bits[i / 8]} >> (i % 8) & 1;
  }

  // `own` contains the marks of the tile's blocks, and `before` is the number of marks of all
  // earlier blocks.
  static constexpr float Value(const Chunk& chunk, const SignLayout& layout, uint32_t own,
                               uint32_t before, uint32_t at) {
    const uint32_t in_tile = at % kTile / kSignElements;
    if ((own >> in_tile & 1) != 0) {
      const uint32_t rank = static_cast<uint32_t>(PopCount(own & ((1u << in_tile) - 1)));
      const uint8_t* const plane =
          chunk.payload + layout.zeros_at + (before + rank) * (kSignElements / 8);
      if (Bit(plane, at % kSignElements) != 0) return 0;
    }
    const auto* const scales =
        reinterpret_cast<const uint16_t*>(chunk.payload) + at / kSignElements * layout.scales;
    if (Bit(chunk.payload + layout.signs_at, at) == 0) return FromBfloat(scales[0]);
    return -FromBfloat(scales[layout.scales - 1]);
  }
};

}  // namespace sluice::compress::gpu
