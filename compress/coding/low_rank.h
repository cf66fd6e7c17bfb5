// SPDX-License-Identifier: Apache-2.0
// The parts of `powersgd` that compute no sums: shapes, positions of factors in a payload,
// rounding, and replacements for lost columns. The encoders on a processor and on a GPU share this
// code. docs/wire-format.md defines the rules. float_bits.h explains why the functions are
// constexpr.
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

// The shape of a chunk as a matrix, stored row by row.
struct LowRankShape {
  // A payload begins with the rank (0 for fp16) and the number of rows. Both factors follow in
  // bf16, column by column. P has `rank` columns of `rows` numbers; Q has `rank` columns of
  // `columns` numbers.
  static constexpr size_t kFactorsAt = 1 + sizeof(uint32_t);

  size_t rows = 0;  // 0 if the chunk is not a matrix.
  size_t columns = 0;

  constexpr size_t FactorsSize(size_t rank) const {
    return rank * (rows + columns) * sizeof(uint16_t);
  }
  constexpr size_t PayloadSize(size_t rank) const { return kFactorsAt + FactorsSize(rank); }
};

// Returns the shape of a matrix of `count` elements in `rows` rows, if factors of this rank take at
// most half of the bytes that the matrix takes in fp16. Otherwise returns an empty shape.
constexpr LowRankShape LowRankShapeFor(size_t count, size_t rows, size_t rank) {
  if (rows == 0 || count == 0 || count % rows != 0) return {};
  const size_t columns = count / rows;
  if (2 * rank * (rows + columns) > count) return {};
  return {.rows = rows, .columns = columns};
}

// These limits prevent an overflow in sums of kRankMax products.
inline constexpr uint16_t kLargestP = 0x4000;  // 2.
inline constexpr uint16_t kLargestQ = 0x7B80;  // 2^120.
static_assert(double{kRankMax} * 2 * 0x1p120 < std::numeric_limits<float>::max());

// Rounds to bf16 and limits the magnitude to `largest`.
constexpr uint16_t RoundWithin(float x, uint16_t largest) {
  const uint16_t code = ToBfloat(x);
  const auto magnitude = static_cast<uint16_t>(code & 0x7FFF);
  return static_cast<uint16_t>((magnitude < largest ? magnitude : largest) | (code & 0x8000));
}

// If the squared norm of a column falls below this share of its former value, the column has no
// significant digits left.
inline constexpr float kLostColumn = 1e-10f;

// Returns element `i` of the replacement for column `column`, from -1 to 1.
constexpr float RandomOfColumn(uint64_t key, size_t column, size_t i) {
  const uint64_t counter = (static_cast<uint64_t>(column) << 32) + i + 1;
  const uint64_t bits = MixBits(key + 0x9E3779B97F4A7C15u * counter);
  return static_cast<float>(static_cast<int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23f;
}

}  // namespace sluice::compress
