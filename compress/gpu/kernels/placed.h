// SPDX-License-Identifier: Apache-2.0
// Codecs blocktopk and randomk, which send values for only some places, as in
// compress/codecs/blocktopk.h and compress/codecs/randomk.h. PickLargest or PickAtRandom selects
// the places of a chunk. FinishPlaced, with a block of threads per chunk, writes the payload.
#pragma once

#include "base/device_functions.h"
#include "base/random.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/planes.h"
#include "compress/gpu/kernels/sparse.h"

namespace sluice::compress::gpu {

// Selects the largest element of each block of 2^bits elements. If several are equal, selects the
// first. The element is written to the slot with the block's number, counted from
// Chunk::first_element, and acc is written to the residual.
template <class Gradient>
struct PickLargest {
  static constexpr int kThreads = kTileThreads;
  static constexpr uint32_t kEach = kTile / kThreads;  // Number of elements per thread.
  struct Best {
    uint32_t magnitude, at;  // `at` is the index within the tile.
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
  uint32_t bits;  // From 2 to 12.
  Slots slots;    // The counts are not used.

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
    const uint32_t size = uint32_t{1} << bits, own = Min(size, kEach);
    block.ForEach([&](int thread) {
      for (uint32_t first = thread * kEach; first < (thread + 1) * kEach; first += own) {
        Best best{0, first};
        for (uint32_t i = 0; i < own; ++i) {
          // Threads start at different elements, because elements of different threads with the
          // same index are in the same memory bank.
          const uint32_t at = first + (i + thread) % own;
          best = Max(best, Best{MagnitudeBits(shared.acc[at]), at});
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
      for (uint32_t i = 1; i < threads; ++i) best = Max(best, shared.best[thread + i]);
      Keep(tile, chunk, shared, best);
    });
  }

 private:
  constexpr void Keep(const Tile& tile, const Chunk& chunk, const Shared& shared,
                      const Best& best) const {
    const uint32_t at = tile.first + best.at;
    // The first of several zeros is selected, so the padding of the last block never is.
    if (at >= chunk.count) return;
    const uint32_t slot = chunk.first_element + (at >> bits);
    slots.positions[slot] = at;
    slots.values[slot] = shared.acc[best.at];
  }
};

// Writes acc to the residual, for codecs that read only a few elements later.
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

constexpr uint32_t PlacesOfBlocks(uint32_t count, int bits) {
  return (count + (uint32_t{1} << bits) - 1) >> bits;
}

// Draws the random elements, one in each of k strata. All senders draw the same elements.
class Strata {
 public:
  constexpr Strata(uint64_t key, uint32_t count, uint32_t k) : random_(key), count_(count), k_(k) {}

  struct Place {
    uint32_t position;
    // Number of elements in the stratum.
    uint32_t stratum;
  };
  constexpr Place At(uint32_t place) const {
    const uint64_t begin = uint64_t{place} * count_ / k_;
    const uint64_t stratum = (uint64_t{place} + 1) * count_ / k_ - begin;
    return {static_cast<uint32_t>(begin + CounterRandom::Scaled(random_.At(place), stratum)),
            static_cast<uint32_t>(stratum)};
  }

 private:
  CounterRandom random_;
  uint32_t count_, k_;
};

// Selects an element in each stratum of a chunk. Must run after Accumulate.
template <class Gradient, bool kUnbiased>
struct PickAtRandom {
  static constexpr int kThreads = 256;
  struct Shared {};

  const Chunk* chunks;
  const uint32_t* places;  // Number of places in each chunk.
  Slots slots;             // The counts are not used.

  // Block `index` handles chunk `index`.
  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const uint32_t k = places[index];
    block.ForEach([&](int thread) {
      const Strata strata(chunk.shared_key, chunk.count, k);
      for (uint32_t place = thread; place < k; place += kThreads) {
        const auto [at, stratum] = strata.At(place);
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

// A frame cannot represent a level below 2^-141, so smaller values count as 0.
constexpr bool IsPlaced(float value) { return MagnitudeBits(value) >= 0x100; }

enum class Placed : uint8_t {
  // blocktopk: the residual becomes the rounding error of the code.
  kOfBlocks,
  // randomk: the residual becomes the rounding error of the code.
  kAtRandom,
  // randomk with scaled values: the sent value is subtracted from the residual.
  kUnbiased,
};

template <class Values, Placed kHow>
struct FinishPlaced {
  static constexpr int kThreads = 256;
  using Shared = ValuesScratch;
  // Size of the beginning of a payload: the description of the places, the format of values, a byte
  // that states whether some values are missing, and the levels.
  static constexpr uint32_t kPlacesAre = kHow == Placed::kOfBlocks ? 1 : 12;
  static constexpr uint32_t kOpening = kPlacesAre + 2 + 3 * Values::kLevels;

  const Chunk* chunks;
  const uint32_t* places;  // Number of places in each chunk.
  uint32_t bits;           // `bits` of PickLargest, for kOfBlocks.
  Slots slots;             // A value and its position for each place.
  // Values and positions of the places whose value is not 0. The counts are not used.
  Slots packed;
  // For each chunk: the number of values, or the number of random places.
  uint32_t* kept;
  uint32_t* sizes;  // Size of each chunk's payload in bytes.

  // Block `index` handles chunk `index`.
  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const uint32_t base = chunk.first_element, k = places[index];
    const auto present = [&](uint32_t place) {
      return place < k && IsPlaced(slots.values[base + place]) ? 1U : 0U;
    };
    const uint32_t count = ForEachSum(block, k, present, [&](uint32_t place, uint32_t before) {
      if (present(place) == 0) return;
      packed.positions[base + before] = slots.positions[base + place];
      packed.values[base + before] = slots.values[base + place];
    });
    const uint32_t* const positions = packed.positions + base;
    const float* const values = packed.values + base;
    const Levels levels =
        ChooseLevels<Values>(block, shared, values, count, Smallest(block, values, count));
    uint8_t* const presence = chunk.payload + kOpening;
    const auto presence_bytes = count < k ? static_cast<uint32_t>(BytesFor(k)) : 0;
    uint8_t* const codes = presence + presence_bytes;
    uint8_t* const last = codes + BytesFor(uint64_t{count} * Values::kBits);
    block.ForEach([&](int thread) {
      for (uint32_t byte = thread; byte < presence_bytes; byte += kThreads) {
        unsigned which = 0;
        for (uint32_t i = 0; i < 8; ++i) which |= present(8 * byte + i) << i;
        presence[byte] = static_cast<uint8_t>(which);
      }
      if (thread == 0) {
        WriteOpening(chunk, k, count, levels);
        kept[index] = kHow == Placed::kOfBlocks ? count : k;
        sizes[index] = static_cast<uint32_t>(last - chunk.payload);
        if (kHow == Placed::kOfBlocks) {
          sizes[index] += static_cast<uint32_t>(BytesFor(uint64_t{count} * bits));
        }
      }
      const auto lose = [&](uint32_t i, const CodedValue& coded) {
        if (chunk.residual == nullptr) return;
        float& left = chunk.left[positions[i]];
        left = (kHow == Placed::kUnbiased ? left : values[i]) - coded.decoded;
      };
      WriteCodes<Values, kThreads>(levels, values, count, thread, codes, lose);
    });
    if constexpr (kHow == Placed::kOfBlocks) {
      WritePacked(block, count, static_cast<int>(bits), last,
                  [&](uint32_t i) { return positions[i]; });
    }
  }

 private:
  constexpr void WriteOpening(const Chunk& chunk, uint32_t k, uint32_t count,
                              const Levels& levels) const {
    uint8_t* at = chunk.payload;
    if constexpr (kHow == Placed::kOfBlocks) {
      *at++ = static_cast<uint8_t>(bits);
    } else {
      StoreBytes<4>(k, at);
      StoreBytes<4>(static_cast<uint32_t>(chunk.shared_key), at + 4);
      StoreBytes<4>(static_cast<uint32_t>(chunk.shared_key >> 32), at + 8);
      at += kPlacesAre;
    }
    at[0] = Values::kFormat;
    at[1] = count < k ? 1 : 0;
    StoreLevels<Values>(levels, at + 2);
  }

  // Returns the smallest magnitude, rounded as in a frame.
  template <class Block>
  static constexpr float Smallest(Block& block, const float* values, uint32_t count) {
    // Distances to infinity are compared, so that the smallest magnitude is a maximum.
    const uint32_t below = LargestOf(
        block, count, [&](uint32_t i) { return kInfinityBits - MagnitudeBits(values[i]); });
    return ToShortFloat(std::bit_cast<float>(kInfinityBits - below));
  }
};

}  // namespace sluice::compress::gpu
