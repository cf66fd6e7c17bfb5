// SPDX-License-Identifier: Apache-2.0
// Kernels that add frames of the formats blocktopk and randomk (docs/wire-format.md) to dense sums,
// with one block of threads per chunk. The index of a place's value is a sum over the presence
// bits; all other data is at known offsets. The caller must have validated the payloads.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/add_sparse.h"
#include "compress/gpu/kernels/placed.h"

namespace sluice::compress::gpu {

// Values at known places, in the format of compress/coding/placed_values.h.
class PlacedPlanes {
 public:
  constexpr PlacedPlanes(const uint8_t* at, uint32_t places) : values_(at[0]), places_(places) {
    const bool some_missing = at[1] != 0;
    at = values_.ReadLevels(at + 2);
    if (some_missing) presence_ = at;
    rest_ = at + (some_missing ? BytesFor(places) : 0);
  }

  // Reads the header of the values. Returns the address after the values. All threads must call
  // this before ForEach.
  template <class Block>
  constexpr const uint8_t* ReadCodes(Block& block) {
    const uint32_t kept =
        presence_ == nullptr
            ? places_
            : SumOf(block, static_cast<uint32_t>(BytesFor(places_)),
                    [this](uint32_t i) { return static_cast<uint32_t>(PopCount(presence_[i])); });
    return values_.ReadCodes(rest_, kept);
  }
  // Calls add(place, index of the value, value) for each value that is not 0.
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
  const uint8_t* presence_ = nullptr;  // Null if all values are non-zero.
  const uint8_t* rest_ = nullptr;
};

struct AddBlockTopK {
  static constexpr int kThreads = 256;
  struct Shared {};

  const Chunk* chunks;

  // Block `index` handles chunk `index`.
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

  // Block `index` handles chunk `index`.
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
