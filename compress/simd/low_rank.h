// SPDX-License-Identifier: Apache-2.0
// Kernels of codec `powersgd`: products of a matrix with a few columns, and of such columns with
// each other. The matrix is stored row by row. Factors are stored column by column: `rank` columns
// with one float per row or per column of the matrix.
//
// Sums are computed in order or, if the comment says so, in 16 lanes: element i is added to lane i
// mod 16, in order. Then lanes l and l + 8 are added, then l and l + 4, then l and l + 2, then the
// remaining two.
#pragma once

#include <cstddef>

namespace sluice::compress {

struct MatrixView {
  const float* values;
  size_t rows;
  size_t columns;
  float scale;  // Factor by which each value is multiplied first.
};

// Computes p = matrix q. Sums over a row are computed in 16 lanes.
void MultiplyByColumns(const MatrixView& matrix, const float* q, size_t rank, float* p);

// Computes q = transposed matrix p. Sums over the rows are computed in order, starting from 0.
void MultiplyByRows(const MatrixView& matrix, const float* p, size_t rank, float* q);

// Returns the sum of a[i] * b[i], computed in 16 lanes.
float DotProduct(const float* a, const float* b, size_t size);

// Computes y[i] += factor * x[i].
void AddScaled(const float* x, float factor, float* y, size_t size);

// Computes sum[i] += p[0] q[0][i] + p[1] q[1][i] + ..., added in order. Column q[k] begins at q + k
// * stride. `rank` must be above 0.
void AddCombination(const float* p, const float* q, size_t stride, size_t rank, float* sum,
                    size_t size);

}  // namespace sluice::compress
