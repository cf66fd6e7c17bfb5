// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/low_rank.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/low_rank.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// The 16 lanes of sums, in one vector or in several shorter ones.
constexpr size_t kGroup = 16;
using Tag = hn::CappedTag<float, kGroup>;
constexpr size_t kLanes = hn::MaxLanes(Tag());
constexpr size_t kVectors = kGroup / kLanes;
using Vector = hn::Vec<Tag>;

HWY_INLINE float SumOfLanes(const Vector* sums) {
  const Tag d;
  float lanes[kGroup];
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, lanes + v * kLanes);
  for (size_t half = kGroup / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Sets out[c * out_stride + r] to the product of row r and column c. The function handles several
// rows and columns at once, so that each is loaded less often and additions do not wait for each
// other.
template <size_t kRows, size_t kColumns>
HWY_INLINE void Dots(const float* HWY_RESTRICT rows, const float* HWY_RESTRICT columns, size_t size,
                     float scale, float* HWY_RESTRICT out, size_t out_stride) {
  const Tag d;
  const auto by = hn::Set(d, scale);
  Vector sums[kRows][kColumns][kVectors];
  for (auto& row : sums) {
    for (auto& column : row) {
      for (auto& sum : column) sum = hn::Zero(d);
    }
  }
  const auto add_group = [&](const float* a, size_t a_stride, const float* b, size_t b_stride) {
    for (size_t v = 0; v < kVectors; ++v) {
      for (size_t c = 0; c < kColumns; ++c) {
        const auto column = hn::LoadU(d, b + c * b_stride + v * kLanes);
        for (size_t r = 0; r < kRows; ++r) {
          const auto row = hn::Mul(hn::LoadU(d, a + r * a_stride + v * kLanes), by);
          sums[r][c][v] = hn::Add(sums[r][c][v], hn::Mul(row, column));
        }
      }
    }
  };
  size_t i = 0;
  for (; i + kGroup <= size; i += kGroup) add_group(rows + i, size, columns + i, size);
  if (i < size) {
    float row_ends[kRows * kGroup] = {}, column_ends[kColumns * kGroup] = {};
    for (size_t j = 0; i + j < size; ++j) {
      for (size_t r = 0; r < kRows; ++r) row_ends[r * kGroup + j] = rows[r * size + i + j];
      for (size_t c = 0; c < kColumns; ++c) {
        column_ends[c * kGroup + j] = columns[c * size + i + j];
      }
    }
    add_group(row_ends, kGroup, column_ends, kGroup);
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t c = 0; c < kColumns; ++c) out[c * out_stride + r] = SumOfLanes(sums[r][c]);
  }
}

template <size_t kRows>
HWY_INLINE void DotsOfRows(const float* rows, const float* columns, size_t rank, size_t size,
                           float scale, float* out, size_t out_stride) {
  size_t c = 0;
  for (; c + 4 <= rank; c += 4) {
    Dots<kRows, 4>(rows, columns + c * size, size, scale, out + c * out_stride, out_stride);
  }
  for (; c < rank; ++c) {
    Dots<kRows, 1>(rows, columns + c * size, size, scale, out + c * out_stride, out_stride);
  }
}

void MultiplyByColumns(const float* values, size_t rows, size_t columns, float scale,
                       const float* q, size_t rank, float* p) {
  size_t r = 0;
  for (; r + 2 <= rows; r += 2) {
    DotsOfRows<2>(values + r * columns, q, rank, columns, scale, p + r, rows);
  }
  if (r < rows) DotsOfRows<1>(values + r * columns, q, rank, columns, scale, p + r, rows);
}

// Adds the products of kRows rows, one after another, to `size` elements of each column of q.
template <size_t kRows>
HWY_INLINE void AddRows(const float* HWY_RESTRICT values, size_t columns, float scale,
                        const float* HWY_RESTRICT p, size_t p_stride, size_t rank,
                        float* HWY_RESTRICT q, size_t size) {
  const Tag d;
  const auto by = hn::Set(d, scale);
  size_t j = 0;
  for (; j + kLanes <= size; j += kLanes) {
    Vector row[kRows];
    for (size_t r = 0; r < kRows; ++r) {
      row[r] = hn::Mul(hn::LoadU(d, values + r * columns + j), by);
    }
    for (size_t k = 0; k < rank; ++k) {
      auto sum = hn::LoadU(d, q + k * columns + j);
      for (size_t r = 0; r < kRows; ++r) {
        sum = hn::Add(sum, hn::Mul(row[r], hn::Set(d, p[k * p_stride + r])));
      }
      hn::StoreU(sum, d, q + k * columns + j);
    }
  }
  for (; j < size; ++j) {
    for (size_t k = 0; k < rank; ++k) {
      float sum = q[k * columns + j];
      for (size_t r = 0; r < kRows; ++r) {
        sum += values[r * columns + j] * scale * p[k * p_stride + r];
      }
      q[k * columns + j] = sum;
    }
  }
}

void MultiplyByRows(const float* values, size_t rows, size_t columns, float scale, const float* p,
                    size_t rank, float* q) {
  std::fill(q, q + rank * columns, 0.0f);
  // Number of columns whose sums fit in the first-level cache at usual ranks.
  constexpr size_t kTile = 512;
  for (size_t at = 0; at < columns; at += kTile) {
    const size_t size = std::min(kTile, columns - at);
    size_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      AddRows<4>(values + r * columns + at, columns, scale, p + r, rows, rank, q + at, size);
    }
    for (; r < rows; ++r) {
      AddRows<1>(values + r * columns + at, columns, scale, p + r, rows, rank, q + at, size);
    }
  }
}

float DotProduct(const float* a, const float* b, size_t size) {
  float out;
  Dots<1, 1>(a, b, size, 1, &out, 1);
  return out;
}

void AddScaled(const float* HWY_RESTRICT x, float factor, float* HWY_RESTRICT y, size_t size) {
  const Tag d;
  const auto by = hn::Set(d, factor);
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::Mul(hn::LoadU(d, x + i), by)), d, y + i);
  }
  for (; i < size; ++i) y[i] += x[i] * factor;
}

void AddCombination(const float* HWY_RESTRICT p, const float* HWY_RESTRICT q, size_t stride,
                    size_t rank, float* HWY_RESTRICT sum, size_t size) {
  const Tag d;
  constexpr size_t kAtOnce = 4;
  size_t i = 0;
  for (; i + kAtOnce * kLanes <= size; i += kAtOnce * kLanes) {
    Vector values[kAtOnce];
    const auto first = hn::Set(d, p[0]);
    for (size_t v = 0; v < kAtOnce; ++v) {
      values[v] = hn::Mul(first, hn::LoadU(d, q + i + v * kLanes));
    }
    for (size_t k = 1; k < rank; ++k) {
      const auto factor = hn::Set(d, p[k]);
      for (size_t v = 0; v < kAtOnce; ++v) {
        const auto term = hn::Mul(factor, hn::LoadU(d, q + k * stride + i + v * kLanes));
        values[v] = hn::Add(values[v], term);
      }
    }
    for (size_t v = 0; v < kAtOnce; ++v) {
      float* const at = sum + i + v * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(d, at), values[v]), d, at);
    }
  }
  for (; i < size; ++i) {
    float value = p[0] * q[i];
    for (size_t k = 1; k < rank; ++k) value += p[k] * q[k * stride + i];
    sum[i] += value;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(MultiplyByColumns);
void MultiplyByColumns(const MatrixView& matrix, const float* q, size_t rank, float* p) {
  HWY_DYNAMIC_DISPATCH(MultiplyByColumns)
  (matrix.values, matrix.rows, matrix.columns, matrix.scale, q, rank, p);
}

HWY_EXPORT(MultiplyByRows);
void MultiplyByRows(const MatrixView& matrix, const float* p, size_t rank, float* q) {
  HWY_DYNAMIC_DISPATCH(MultiplyByRows)
  (matrix.values, matrix.rows, matrix.columns, matrix.scale, p, rank, q);
}

HWY_EXPORT(DotProduct);
float DotProduct(const float* a, const float* b, size_t size) {
  return HWY_DYNAMIC_DISPATCH(DotProduct)(a, b, size);
}

HWY_EXPORT(AddScaled);
void AddScaled(const float* x, float factor, float* y, size_t size) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(x, factor, y, size);
}

HWY_EXPORT(AddCombination);
void AddCombination(const float* p, const float* q, size_t stride, size_t rank, float* sum,
                    size_t size) {
  HWY_DYNAMIC_DISPATCH(AddCombination)(p, q, stride, rank, sum, size);
}

}  // namespace sluice::compress
#endif
