// Kernels of codec `powersgd`: products of a matrix with few columns, and of few columns with each
// other. The matrix is stored row by row, factors column by column (`rank` columns of one float per
// row or column of the matrix).
// Sums are in order, or where that is said in 16 lanes: element i in lane i mod 16, in order, then
// lanes l and l + 8 are added, l and l + 4, l and l + 2, and the two that are left.
#pragma once

#include <cstddef>

namespace sluice::compress {

struct MatrixView {
  const float* values;
  size_t rows;
  size_t columns;
  float scale;  // Each value is multiplied by it first.
};

// p = matrix q; sums over a row, in 16 lanes.
void MultiplyByColumns(const MatrixView& matrix, const float* q, size_t rank, float* p);

// q = transposed matrix p; sums over the rows, in order, from 0.
void MultiplyByRows(const MatrixView& matrix, const float* p, size_t rank, float* q);

// Sum of a[i] * b[i], in 16 lanes.
float DotProduct(const float* a, const float* b, size_t size);

// y[i] += factor * x[i].
void AddScaled(const float* x, float factor, float* y, size_t size);

// sum[i] += p[0] q[0][i] + p[1] q[1][i] + ..., added up in order; q[k] begins at q + k * stride.
// rank > 0.
void AddCombination(const float* p, const float* q, size_t stride, size_t rank, float* sum,
                    size_t size);

}  // namespace sluice::compress
