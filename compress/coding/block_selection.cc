// SPDX-License-Identifier: Apache-2.0
#include "compress/coding/block_selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "compress/simd/select.h"

namespace sluice::compress {
namespace {

constexpr size_t kTileSide = 64;
constexpr size_t kFlatBlock = kTileSide * kTileSide;

// The matrix whose blocks are tiles. A chunk that is not a matrix is one row.
struct Grid {
  size_t rows, columns;
  size_t tile_rows, tile_columns;
};

Grid GridOf(size_t count, uint32_t rows) {
  if (rows == 0) return {.rows = 1, .columns = count, .tile_rows = 1, .tile_columns = kFlatBlock};
  return {.rows = rows, .columns = count / rows, .tile_rows = kTileSide, .tile_columns = kTileSide};
}

// A part of the matrix.
struct Tile {
  size_t corner = 0;  // Position of the upper left element.
  size_t height = 0, width = 0;
};

// What a tile keeps: all magnitudes above `bits`, and the first `equal` of those that equal it.
struct Limit {
  uint32_t bits = 0;
  uint32_t equal = 0;
  bool has_more_equals = false;
};

// Calls fn(row) for each row of the tile.
template <typename Fn>
void ForEachRow(absl::Span<const float> acc, const Grid& grid, const Tile& tile, Fn fn) {
  for (size_t row = 0; row < tile.height; ++row) {
    fn(acc.subspan(tile.corner + row * grid.columns, tile.width));
  }
}

// `candidates` has space for all elements of the tile.
Limit LimitOf(absl::Span<const float> acc, const Grid& grid, const Tile& tile, double density,
              uint32_t* candidates) {
  const auto wanted =
      static_cast<size_t>(std::ceil(density * static_cast<double>(tile.height * tile.width)));
  MagnitudeBins bins;
  ForEachRow(acc, grid, tile, [&](absl::Span<const float> row) { bins.Add(row); });
  size_t above = 0;
  const uint32_t bin = bins.BinOfLast(wanted, &above);
  uint32_t* end = candidates;
  ForEachRow(acc, grid, tile, [&](absl::Span<const float> row) {
    for (const float value : row) {
      *end = MagnitudeBits(value);
      end += MagnitudeBins::BinOf(value) == bin ? 1 : 0;
    }
  });
  uint32_t* const last = candidates + (wanted - above) - 1;
  std::nth_element(candidates, last, end, std::greater<>());
  // Zeros are not kept, so a tile with fewer other elements keeps all of these.
  const uint32_t bits = std::max(*last, uint32_t{1});
  return {.bits = bits,
          .equal = static_cast<uint32_t>(std::count(candidates, last + 1, bits)),
          .has_more_equals = std::find(last + 1, end, bits) != end};
}

// Drops elements from a list of kept ones: those that equal the limit of their tile, after the
// first `equal` ones of the tile. Returns the number of remaining elements.
size_t DropEquals(const Grid& grid, const uint32_t* limits, uint32_t* equal, size_t kept,
                  uint32_t* positions, float* values) {
  size_t left = 0;
  for (size_t i = 0; i < kept; ++i) {
    const size_t tile = positions[i] % grid.columns / grid.tile_columns;
    if (MagnitudeBits(values[i]) == limits[tile]) {
      if (equal[tile] == 0) continue;
      --equal[tile];
    }
    positions[left] = positions[i];
    values[left++] = values[i];
  }
  return left;
}

}  // namespace

float MagnitudeBins::LowestOf(uint32_t bin) {
  return std::bit_cast<float>(std::max(bin << kShift, uint32_t{1}));
}

uint32_t MagnitudeBins::BinOfLast(size_t wanted, size_t* above) const {
  *above = 0;
  for (size_t bin = counts_.size() - 1; bin > 0; --bin) {
    if (*above + counts_[bin] >= wanted) return static_cast<uint32_t>(bin);
    *above += counts_[bin];
  }
  return 0;
}

size_t SelectLargestOfBlocks(absl::Span<const float> acc, uint32_t rows, double density,
                             EncodeScratch* scratch) {
  // SelectAbove writes the sums of its arguments, so it gets a copy of each row. Adding -0.0
  // changes no value, not even the sign of a zero.
  float nothing[kFlatBlock];
  float copy[kFlatBlock];
  std::fill(nothing, nothing + kFlatBlock, -0.0f);
  const Grid grid = GridOf(acc.size(), rows);
  const size_t across = (grid.columns + grid.tile_columns - 1) / grid.tile_columns;
  uint32_t* const candidates = AtLeast(&scratch->numbers, kFlatBlock + 1);
  uint32_t* const limits = AtLeast(&scratch->scales, 2 * across);
  uint32_t* const equal = limits + across;
  uint32_t* positions = AtLeast(&scratch->positions, acc.size() + kSelectSlack);
  float* values = AtLeast(&scratch->values, acc.size() + kSelectSlack);
  size_t kept = 0;
  for (size_t band = 0; band < grid.rows; band += grid.tile_rows) {
    const size_t height = std::min(grid.tile_rows, grid.rows - band);
    const auto tile_at = [&](size_t tile, size_t row) {
      const size_t column = tile * grid.tile_columns;
      return Tile{.corner = row * grid.columns + column,
                  .height = height,
                  .width = std::min(grid.tile_columns, grid.columns - column)};
    };
    bool has_more_equals = false;
    for (size_t tile = 0; tile < across; ++tile) {
      const Limit limit = LimitOf(acc, grid, tile_at(tile, band), density, candidates);
      limits[tile] = limit.bits;
      equal[tile] = limit.equal;
      has_more_equals = has_more_equals || limit.has_more_equals;
    }
    size_t of_band = 0;
    for (size_t row = band; row < band + height; ++row) {
      for (size_t tile = 0; tile < across; ++tile) {
        const Tile part = tile_at(tile, row);
        std::copy_n(acc.data() + part.corner, part.width, copy);
        of_band +=
            SelectAbove(nothing, copy, part.width, std::bit_cast<float>(limits[tile]),
                        static_cast<uint32_t>(part.corner), positions + of_band, values + of_band);
      }
    }
    if (has_more_equals) of_band = DropEquals(grid, limits, equal, of_band, positions, values);
    positions += of_band;
    values += of_band;
    kept += of_band;
  }
  return kept;
}

}  // namespace sluice::compress
