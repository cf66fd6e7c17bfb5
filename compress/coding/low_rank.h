// What `powersgd` makes of a chunk, apart from the sums: shapes, where factors lie in a payload,
// how they are rounded, what stands for a column that is lost. Encoders on a processor and on a GPU
// share it; docs/wire-format.md has the rules. Constexpr, as float_bits.h is.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/float_bits.h"
#include "base/random.h"

namespace sluice::compress {

inline constexpr size_t kRankMax = 32;

// A chunk as a matrix, row by row.
struct LowRankShape {
  // A payload begins with the rank, 0 for fp16, and then the number of rows; then come both factors
  // in bf16, column by column: P with `rows` numbers for each of `rank` columns, Q with `columns`.
  static constexpr size_t kFactorsAt = 1 + sizeof(uint32_t);

  size_t rows = 0;  // 0: not a matrix.
  size_t columns = 0;

  constexpr size_t FactorsSize(size_t rank) const {
    return rank * (rows + columns) * sizeof(uint16_t);
  }
  constexpr size_t PayloadSize(size_t rank) const { return kFactorsAt + FactorsSize(rank); }
};

// The matrix that `count` elements in `rows` rows are, if factors of that rank take at most half of
// its bytes.
constexpr LowRankShape LowRankShapeFor(size_t count, size_t rows, size_t rank) {
  if (rows == 0 || count == 0 || count % rows != 0) return {};
  const size_t columns = count / rows;
  if (2 * rank * (rows + columns) > count) return {};
  return {.rows = rows, .columns = columns};
}

// So that no sum of kRankMax products overflows.
inline constexpr uint16_t kLargestP = 0x4000;  // 2.
inline constexpr uint16_t kLargestQ = 0x7B80;  // 2^120.
static_assert(double{kRankMax} * 2 * 0x1p120 < std::numeric_limits<float>::max());

// bf16, at most `largest` in magnitude.
constexpr uint16_t RoundWithin(float x, uint16_t largest) {
  const uint16_t code = ToBfloat(x);
  const auto magnitude = static_cast<uint16_t>(code & 0x7FFF);
  return static_cast<uint16_t>((magnitude < largest ? magnitude : largest) | (code & 0x8000));
}

// Smaller than so much of what it was, squared, a column has no digits left that mean something.
inline constexpr float kLostColumn = 1e-10f;

// From -1 to 1; number `i` of column `column` where a column is made up.
constexpr float RandomOfColumn(uint64_t key, size_t column, size_t i) {
  const uint64_t counter = (static_cast<uint64_t>(column) << 32) + i + 1;
  const uint64_t bits = MixBits(key + 0x9E3779B97F4A7C15u * counter);
  return static_cast<float>(static_cast<int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23f;
}

}  // namespace sluice::compress
