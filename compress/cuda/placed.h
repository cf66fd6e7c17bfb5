// Codecs that send one value for each of some places, blocktopk and randomk, as
// compress/blocktopk.h and compress/randomk.h have them: PickLargest or PickAtRandom choose a
// chunk's places, FinishPlaced codes the values. What they leave is what AppendPlacedCodes
// (compress/placed_values.h) writes.
#pragma once

#include "compress/cuda/block.h"
#include "compress/cuda/sparse.h"

namespace sluice::gpu {

// The largest of each block of 2^bits elements, of equal ones the first, goes to the slot of the
// block's number, from Chunk::first_element on; acc to the residual.
template <class Gradient>
struct PickLargest {
  static constexpr int kThreads = kTileThreads;
  static constexpr uint32_t kEach = kTile / kThreads;  // Elements of a thread.
  struct Best {
    uint32_t magnitude, at;  // In the tile.
    constexpr bool operator<(const Best& other) const {
      return magnitude < other.magnitude || (magnitude == other.magnitude && at > other.at);
    }
  };
  struct Shared {
    float acc[kTile];
    Best best[kThreads];
  };

  const Chunk* chunks;
  const Tile* tiles;
  uint32_t bits;  // 2 to 12.
  Slots slots;    // No counts.

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    block.ForEach([&](int thread) {
      constexpr int kRun = 4;
      for (uint32_t i = thread * kRun; i < kTile; i += kThreads * kRun) {
        const auto acc = LoadAcc<Gradient, kRun>(chunk, tile.first + i);
        StoreResidual<kRun>(acc, chunk, tile.first + i);
        for (int j = 0; j < kRun; ++j) shared.acc[i + j] = acc.at[j];
      }
    });
    block.Sync();
    const uint32_t size = uint32_t{1} << bits, own = std::min(size, kEach);
    block.ForEach([&](int thread) {
      for (uint32_t first = thread * kEach; first < (thread + 1) * kEach; first += own) {
        Best best{0, first};
        for (uint32_t i = 0; i < own; ++i) {
          // Each thread from another one on, as their elements lie in the same banks.
          const uint32_t at = first + (i + thread) % own;
          best = std::max(best, Best{MagnitudeBits(shared.acc[at]), at});
        }
        shared.best[thread] = best;
        if (size <= kEach) Keep(tile, chunk, shared, best);
      }
    });
    if (size <= kEach) return;
    block.Sync();
    block.ForEach([&](int thread) {
      const uint32_t threads = size / kEach;
      if (thread % threads != 0) return;
      Best best = shared.best[thread];
      for (uint32_t i = 1; i < threads; ++i) best = std::max(best, shared.best[thread + i]);
      Keep(tile, chunk, shared, best);
    });
  }

 private:
  constexpr void Keep(const Tile& tile, const Chunk& chunk, const Shared& shared,
                      const Best& best) const {
    const uint32_t at = tile.first + best.at;
    // Of zeros the first is best, so that what fills the last block up never is.
    if (at >= chunk.count) return;
    const uint32_t slot = chunk.first_element + (at >> bits);
    slots.positions[slot] = at;
    slots.values[slot] = shared.acc[best.at];
  }
};

// acc to the residual, for codecs that look at few elements afterwards.
template <class Gradient>
struct Accumulate {
  static constexpr int kThreads = kTileThreads;
  static constexpr int kRun = 4;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    ForEachRunOfTile<kRun>(block, chunks, tiles[index], [&](const Chunk& chunk, uint32_t at) {
      StoreResidual<kRun>(LoadAcc<Gradient, kRun>(chunk, at), chunk, at);
    });
  }
};

// One element of each of a chunk's strata, as all senders draw it. After Accumulate.
template <class Gradient, bool kUnbiased>
struct PickAtRandom {
  static constexpr int kThreads = 256;
  struct Shared {};

  const Chunk* chunks;
  const uint32_t* places;  // Of each chunk.
  Slots slots;             // No counts.

  // Block `index` has chunk `index`.
  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const uint32_t k = places[index];
    block.ForEach([&](int thread) {
      const CounterRandom random(chunk.shared_key);
      for (uint32_t place = thread; place < k; place += kThreads) {
        const uint64_t begin = uint64_t{place} * chunk.count / k;
        const uint64_t stratum = (uint64_t{place} + 1) * chunk.count / k - begin;
        const auto at =
            static_cast<uint32_t>(begin + CounterRandom::Scaled(random.At(place), stratum));
        float value = chunk.residual != nullptr ? chunk.left[at]
                                                : LoadAcc<Gradient, 1, true>(chunk, at).at[0];
        constexpr float kMax = std::bit_cast<float>(kInfinityBits - 1);
        if (kUnbiased) value = Clamp(value * static_cast<float>(stratum), -kMax, kMax);
        slots.positions[chunk.first_element + place] = at;
        slots.values[chunk.first_element + place] = value;
      }
    });
  }
};

// Below 2^-141 there is no level that a frame could hold: such values count as 0.
constexpr bool IsPlaced(float value) { return MagnitudeBits(value) >= 0x100; }

// With kSubtract what was sent leaves the residual; else the residual becomes what a code loses.
template <class Values, bool kSubtract>
struct FinishPlaced {
  static constexpr int kThreads = 256;
  using Shared = ValuesRoom;

  const Chunk* chunks;
  const uint32_t* places;  // Of each chunk.
  Slots slots;             // A value and its position for each place.
  Slots packed;            // Likewise, of those whose value is not 0; no counts.
  uint8_t* presence;       // A bit per place, from a byte for each of Chunk::first_element on.
  SparseResult* results;   // Of each chunk. Codes go to its payload.

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const uint32_t base = chunk.first_element, k = places[index];
    uint32_t kept = 0;
    for (uint32_t first = 0; first < k; first += kThreads) {
      typename Block::template Each<uint32_t> rank;
      block.ForEach([&](int thread) { rank[thread] = Present(base, first + thread, k); });
      const uint32_t all = block.ExclusiveSum(rank);
      block.ForEach([&](int thread) {
        const uint32_t place = first + thread;
        if (place < k && place % 8 == 0) {
          unsigned bits = 0;
          for (uint32_t i = 0; i < 8; ++i) bits |= Present(base, place + i, k) << i;
          presence[base + place / 8] = static_cast<uint8_t>(bits);
        }
        if (Present(base, place, k) == 0) return;
        packed.positions[base + kept + rank[thread]] = slots.positions[base + place];
        packed.values[base + kept + rank[thread]] = slots.values[base + place];
      });
      kept += all;
    }
    block.Sync();
    const uint32_t* const positions = packed.positions + base;
    const float* const values = packed.values + base;
    const float floor = Smallest(block, values, kept);
    const Levels levels = ChooseLevels<Values>(block, shared, values, kept, floor);
    block.ForEach([&](int thread) {
      if (thread == 0) results[index] = {kept, levels};
      const auto lose = [&](uint32_t i, const CodedValue& coded) {
        if (chunk.residual == nullptr) return;
        float& left = chunk.left[positions[i]];
        left = (kSubtract ? left : values[i]) - coded.decoded;
      };
      WriteCodes<Values, kThreads>(levels, values, kept, thread, chunk.payload, lose);
    });
  }

 private:
  constexpr unsigned Present(uint32_t base, uint32_t place, uint32_t k) const {
    return place < k && IsPlaced(slots.values[base + place]) ? 1 : 0;
  }

  // Rounded as a frame holds it.
  template <class Block>
  static constexpr float Smallest(Block& block, const float* values, uint32_t kept) {
    typename Block::template Each<uint32_t> below;  // How far below infinity.
    block.ForEach([&](int thread) {
      below[thread] = 0;
      for (uint32_t i = thread; i < kept; i += kThreads) {
        below[thread] = std::max(below[thread], kInfinityBits - MagnitudeBits(values[i]));
      }
    });
    return ToShortFloat(std::bit_cast<float>(kInfinityBits - block.Max(below)));
  }
};

}  // namespace sluice::gpu
