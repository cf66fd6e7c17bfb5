// SPDX-License-Identifier: Apache-2.0
// Selects the elements of largest magnitude in each block of a chunk, as SparseLoCo does (Sarfi et
// al. 2025). A block of a matrix is a tile of 64 x 64 elements; at the right and lower edges, tiles
// are smaller. A block of a chunk that is not a matrix has 4096 consecutive elements; the last one
// may be shorter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/float_bits.h"
#include "compress/codec.h"

namespace sluice::compress {

// Counts values by magnitude, and finds the bin that contains the last of the `wanted` largest
// values. A bin consists of the magnitudes with equal upper bits: 8 of exponent and 3 of mantissa.
class MagnitudeBins {
 public:
  static uint32_t BinOf(float value) { return MagnitudeBits(value) >> kShift; }
  // Returns the smallest magnitude of a bin. It is never 0, so that zeros are not kept.
  static float LowestOf(uint32_t bin);

  void Add(absl::Span<const float> values) {
    for (const float value : values) ++counts_[BinOf(value)];
  }
  // Returns the bin that contains the last of the `wanted` largest values, or 0 if there are fewer
  // values. Sets `*above` to the number of values in larger bins.
  uint32_t BinOfLast(size_t wanted, size_t* above) const;

 private:
  static constexpr int kShift = 20;
  std::array<uint32_t, 2048> counts_{};
};

// Writes the positions, in ascending order, and the values of the ceil(density * size) elements of
// largest magnitude in each block to the front of scratch->positions and scratch->values. Zeros are
// never selected. If several magnitudes are equal, the first positions within the block are
// selected, row by row. `acc` must be finite. `rows` divides its size if the chunk is a matrix and
// is otherwise 0. Returns the number of selected elements.
size_t SelectLargestOfBlocks(absl::Span<const float> acc, uint32_t rows, double density,
                             EncodeScratch* scratch);

}  // namespace sluice::compress
