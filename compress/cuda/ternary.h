// Codec ternary:t, as compress/ternary.h has it: one pass that selects, quantizes and keeps the
// residual, then FinishTernary, a block of threads per chunk, which reads what was kept alone.
// Gaps, signs and scales are what AppendTernaryPayload (compress/ternary.h) makes a payload of.
#pragma once

#include "compress/cuda/block.h"
#include "compress/cuda/sparse.h"

namespace sluice::gpu {

inline constexpr uint32_t kTernarySign = 0x80000000;  // Of a position: a negative value.
inline constexpr int kTernaryShift = 20;              // A scale has 3 bits of mantissa.
inline constexpr uint32_t kTernaryMax = 0x7F7;

template <class Gradient>
struct EncodeTernary {
  static constexpr int kThreads = kTileThreads;
  static constexpr int kLanes = 8;
  struct Shared {
    float acc[kTileThreads / kWarp][kCodeBlock];
    double sums[kTileThreads / kWarp][kLanes];
  };

  const Chunk* chunks;
  const Tile* tiles;
  float share;
  Slots slots;       // No values.
  uint32_t* scales;  // Of all chunks' blocks: codes, 0 if nothing is kept.

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    for (int round = 0; round < kTileRounds; ++round) Encode(block, shared, tile, chunk, round);
  }

 private:
  template <class Block>
  constexpr void Encode(Block& block, Shared& shared, const Tile& tile, const Chunk& chunk,
                        int round) const {
    typename Block::template Each<Lane<4>> lanes;
    typename Block::template Each<uint32_t> largest;
    Ranks<Block> ranks;
    block.ForEach([&](int thread) {
      largest[thread] = lanes[thread].template Load<Gradient>(chunk, BlockOf(tile, round, thread),
                                                              thread % kWarp);
    });
    block.MaxOfWarp(largest);
    const auto tau = [&](int thread) {
      const float least = share * std::bit_cast<float>(largest[thread]);
      // Above 0, so that zeros are never kept.
      return least > 0 ? least : std::bit_cast<float>(uint32_t{1});
    };
    ranks.Ballot(block, [&](int thread, int plane, int i) {
      return Magnitude(lanes[thread].acc[plane].at[i]) >= tau(thread);
    });
    block.Sync();
    block.ForEach([&](int thread) {
      for (int plane = 0; plane < Lane<4>::kPlanes; ++plane) {
        for (int i = 0; i < Lane<4>::kRun; ++i) {
          shared.acc[thread / kWarp][Lane<4>::At(thread % kWarp, plane) + i] =
              lanes[thread].acc[plane].at[i];
        }
      }
    });
    block.Sync();
    block.ForEach([&](int thread) {
      if (thread % kWarp >= kLanes) return;
      double sum = 0;
      for (uint32_t i = thread % kWarp; i < kCodeBlock; i += kLanes) {
        const float x = Magnitude(shared.acc[thread / kWarp][i]);
        sum += x >= tau(thread) ? double{x} : 0.0;
      }
      shared.sums[thread / kWarp][thread % kWarp] = sum;
    });
    block.Sync();
    block.ForEach([&](int thread) {
      const uint32_t at = BlockOf(tile, round, thread);
      if (at >= chunk.count) return;
      const uint32_t kept = ranks.ForEachKept(thread, [](uint32_t, int, int) {});
      double total = 0;
      for (const double sum : shared.sums[thread / kWarp]) total += sum;
      const uint32_t code = kept > 0 ? ScaleCode(total, kept) : 0;
      Keep(ranks, chunk, at, thread, code, &lanes[thread]);
      if (thread % kWarp != 0) return;
      scales[chunk.first_block + at / kCodeBlock] = code;
      slots.kept[chunk.first_block + at / kCodeBlock] = code > 0 ? kept : 0;
    });
  }

  template <class Block>
  constexpr void Keep(const Ranks<Block>& ranks, const Chunk& chunk, uint32_t at, int thread,
                      uint32_t code, Lane<4>* elements) const {
    const int lane = thread % kWarp;
    const float scale = std::bit_cast<float>(code << kTernaryShift);
    if (code > 0) {
      ranks.ForEachKept(thread, [&](uint32_t rank, int plane, int i) {
        float& x = elements->acc[plane].at[i];
        const uint32_t sign = std::bit_cast<uint32_t>(x) & kSignBit;
        slots.positions[chunk.first_element + at + rank] =
            (at + Lane<4>::At(lane, plane) + i) | sign;
        x -= std::bit_cast<float>(std::bit_cast<uint32_t>(scale) | sign);
      });
    }
    elements->StoreLeft(chunk, at, lane);
  }

  static constexpr uint32_t ScaleCode(double sum, uint32_t kept) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(sum / static_cast<double>(kept)));
    constexpr uint32_t kHalf = (1 << (kTernaryShift - 1)) - 1;
    return std::min((bits + kHalf + ((bits >> kTernaryShift) & 1)) >> kTernaryShift, kTernaryMax);
  }
};

struct FinishTernary {
  static constexpr int kThreads = 256;
  struct Shared {};

  const Chunk* chunks;
  Slots slots;
  uint32_t* packed;  // Room for all elements: positions with signs.
  uint32_t* gaps;    // Likewise.
  uint32_t* kept;    // Of each chunk. A bit per value, 1 is negative, goes to its payload.

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const uint32_t total = CompactSlots(block, chunk, slots.kept, [&](uint32_t from, uint32_t to) {
      packed[to] = slots.positions[from];
    });
    const uint32_t* const entries = packed + chunk.first_element;
    block.ForEach([&](int thread) {
      if (thread == 0) kept[index] = total;
      for (uint32_t i = thread; i < total; i += kThreads) {
        const uint32_t here = entries[i] & ~kTernarySign;
        gaps[chunk.first_element + i] = i == 0 ? here : here - (entries[i - 1] & ~kTernarySign) - 1;
      }
      for (uint32_t byte = thread; 8 * byte < total; byte += kThreads) {
        unsigned bits = 0;
        for (uint32_t i = 0; i < 8 && 8 * byte + i < total; ++i) {
          bits |= entries[8 * byte + i] >> 31 << i;
        }
        chunk.payload[byte] = static_cast<uint8_t>(bits);
      }
    });
  }
};

}  // namespace sluice::gpu
