// Adds frames of formats blocktopk and randomk (docs/wire-format.md) to dense sums, a block of
// threads per chunk. Which place has which value is a sum over the presence bits; all else is where
// it is known to be. Payloads were validated before.
#pragma once

#include "compress/gpu/kernels/add_sparse.h"
#include "compress/gpu/kernels/placed.h"

namespace sluice::compress::gpu {

// Values with a place for each, as compress/coding/placed_values.h has them.
class PlacedPlanes {
 public:
  constexpr PlacedPlanes(const uint8_t* at, uint32_t places) : values_(at[0]), places_(places) {
    const bool some_missing = at[1] != 0;
    at = values_.ReadLevels(at + 2);
    if (some_missing) presence_ = at;
    rest_ = at + (some_missing ? BytesFor(places) : 0);
  }

  // Returns what is after the values. All threads do this, before the next.
  template <class Block>
  constexpr const uint8_t* ReadCodes(Block& block) {
    const uint32_t kept =
        presence_ == nullptr
            ? places_
            : SumOf(block, static_cast<uint32_t>(BytesFor(places_)), [this](uint32_t i) {
                return static_cast<uint32_t>(std::popcount(presence_[i]));
              });
    return values_.ReadCodes(rest_, kept);
  }
  // add(place, number of the value, value) for each that is there.
  template <class Block, class Add>
  constexpr void ForEach(Block& block, Add add) const {
    const auto present = [this](uint32_t i) {
      return presence_ == nullptr ? 1U : presence_[i / 8] >> (i % 8) & 1U;
    };
    ForEachSum(block, places_, present, [&](uint32_t i, uint32_t before) {
      if (present(i) != 0) add(i, before, values_.At(before));
    });
  }

 private:
  SparseValues values_;
  uint32_t places_;
  const uint8_t* presence_ = nullptr;  // Null: all are there.
  const uint8_t* rest_ = nullptr;
};

struct AddBlockTopK {
  static constexpr int kThreads = 256;
  struct Shared {};

  const Chunk* chunks;

  // Block `index` has chunk `index`.
  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const int bits = chunk.payload[0];
    PlacedPlanes planes(chunk.payload + 1, PlacesOfBlocks(chunk.count, bits));
    const uint8_t* const positions = planes.ReadCodes(block);
    planes.ForEach(block, [&](uint32_t place, uint32_t i, float value) {
      chunk.sum[(place << bits) + NumberAt(positions, i, bits)] += value;
    });
  }
};

struct AddRandomK {
  static constexpr int kThreads = 256;
  struct Shared {};

  const Chunk* chunks;

  // Likewise.
  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const auto k = LoadBytes<uint32_t>(chunk.payload);
    const Strata strata(LoadBytes<uint64_t>(chunk.payload + 4), chunk.count, k);
    PlacedPlanes planes(chunk.payload + 12, k);
    planes.ReadCodes(block);
    planes.ForEach(block, [&](uint32_t place, uint32_t, float value) {
      chunk.sum[strata.At(place).position] += value;
    });
  }
};

}  // namespace sluice::compress::gpu
