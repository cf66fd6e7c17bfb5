// SPDX-License-Identifier: Apache-2.0
// Codec powersgd, as in compress/codecs/powersgd.h. The results have the same bits as on the
// processor, because every sum is computed in the same order (compress/simd/low_rank.h), which
// suits parallel threads. The matrices of all chunks together take six launches:
//   1. Largest: computes acc and its largest magnitude, by which acc is normalized.
//   2. MultiplyByColumns: P = M Q, with Q from the last step. Reads M once for four columns of Q.
//   3. Orthonormalize: orthonormalizes P, with a block of threads per chunk, and rounds it.
//   4. MultiplyByRows: Q = M^T P, and the rest of the payload. Reads M once for four columns of P.
//   5. RefreshColumns: replaces lost columns of Q for the next step.
//   6. SubtractProduct: subtracts the decoded matrix from the residual.
#pragma once

#include <cmath>

#include "base/device_functions.h"
#include "compress/coding/low_rank.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"

namespace sluice::compress::gpu {

// Input of all these kernels.
struct LowRankWork {
  const Chunk* chunks;
  // This member and the next two have one entry for each chunk.
  const LowRankMatrix* matrices;
  const uint32_t* largest;  // The result of the kernel Largest.
  // Bit k is set if column k of P was linearly dependent on the columns before it.
  uint32_t* replaced;
  uint32_t rank;
};

// Returns an element of acc. The kernel Largest must have run before.
template <class Gradient>
constexpr float AccAt(const Chunk& chunk, uint32_t at) {
  if (chunk.residual != nullptr) return chunk.left[at];
  return LoadAcc<Gradient, 1, true>(chunk, at).at[0];
}

struct DotScratch {
  float lanes[kSumLanes];
};
// Returns the sum of a[i] * b[i] in all threads. Ends with a Sync.
template <class Block>
constexpr float DotProduct(Block& block, DotScratch& scratch, const float* a, const float* b,
                           uint32_t size) {
  block.ForEach([&](int thread) {
    if (thread >= kSumLanes) return;
    float sum = 0;
    for (uint32_t i = thread; i < size; i += kSumLanes) sum += a[i] * b[i];
    scratch.lanes[thread] = sum;
  });
  block.Sync();
  const float sum = SumOfLanes(scratch.lanes);
  block.Sync();
  return sum;
}

template <class Gradient>
struct MultiplyByColumns {
  static constexpr int kThreads = 256;
  static constexpr uint32_t kAtOnce = 4;
  static_assert(kTileRows * kSumLanes == kThreads);
  struct Shared {
    float lanes[kAtOnce][kThreads];
  };

  LowRankWork work;
  const Tile* tiles;  // Tiles of kTileRows rows.

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = work.chunks[tile.chunk];
    const LowRankMatrix matrix = work.matrices[tile.chunk];
    const float scale = PowerThatNormalizes(work.largest[tile.chunk]);
    const auto row_of = [&](int thread) { return tile.first + thread / kSumLanes; };
    for (uint32_t first = 0; first < work.rank; first += kAtOnce) {
      const uint32_t columns = Min(work.rank - first, uint32_t{kAtOnce});
      block.ForEach([&](int thread) {
        float sums[kAtOnce] = {};
        if (row_of(thread) < matrix.rows) {
          for (uint32_t i = thread % kSumLanes; i < matrix.columns; i += kSumLanes) {
            const float x = AccAt<Gradient>(chunk, row_of(thread) * matrix.columns + i) * scale;
            const float* const q = matrix.q + first * matrix.columns + i;
            for (uint32_t c = 0; c < kAtOnce; ++c) {
              if (c < columns) sums[c] += x * q[c * matrix.columns];
            }
          }
        }
        for (uint32_t c = 0; c < kAtOnce; ++c) shared.lanes[c][thread] = sums[c];
      });
      block.Sync();
      block.ForEach([&](int thread) {
        const uint32_t c = thread % kSumLanes;
        if (c >= columns || row_of(thread) >= matrix.rows) return;
        matrix.p[(first + c) * matrix.rows + row_of(thread)] =
            SumOfLanes(shared.lanes[c] + thread / kSumLanes * kSumLanes);
      });
      block.Sync();
    }
  }
};

// Performs modified Gram-Schmidt, as Orthonormalize in compress/codecs/powersgd.cc does.
struct Orthonormalize {
  static constexpr int kThreads = 256;
  using Shared = DotScratch;

  LowRankWork work;

  // Block `index` handles chunk `index`.
  template <class Block>
  constexpr void operator()(Block& block, Shared& scratch, uint32_t index) const {
    const Chunk chunk = work.chunks[index];
    const LowRankMatrix matrix = work.matrices[index];
    if (matrix.rows == 0) return;
    const bool empty = work.largest[index] == 0;
    uint8_t* const factors = chunk.payload + LowRankShape::kFactorsAt;
    block.ForEach([&](int thread) {
      if (thread == 0) {
        chunk.payload[0] = static_cast<uint8_t>(work.rank);
        StoreBytes<4>(matrix.rows, chunk.payload + 1);
      }
      const uint32_t bytes = 2 * work.rank * (matrix.rows + matrix.columns);
      for (uint32_t i = thread; i < bytes && empty; i += kThreads) factors[i] = 0;
    });
    if (empty) return;
    uint32_t replaced = 0;
    for (uint32_t k = 0; k < work.rank; ++k) {
      float* const column = matrix.p + k * matrix.rows;
      float before = DotProduct(block, scratch, column, column, matrix.rows);
      float left = Orthogonalize(block, scratch, matrix, k);
      if (!(left > kLostColumn * before)) {
        replaced |= uint32_t{1} << k;
        ForEachRow(block, matrix, [&](uint32_t i) {
          column[i] = RandomOfColumn(chunk.shared_key, kRankMax + k, i);
        });
        before = DotProduct(block, scratch, column, column, matrix.rows);
        left = Orthogonalize(block, scratch, matrix, k);
      }
      const float factor = left > kLostColumn * before ? 1 / std::sqrt(left) : 0;
      ForEachRow(block, matrix, [&](uint32_t i) { column[i] *= factor; });
    }
    for (uint32_t k = 0; k < work.rank; ++k) {
      ForEachRow(block, matrix, [&](uint32_t i) {
        const uint16_t code = RoundWithin(matrix.p[k * matrix.rows + i], kLargestP);
        StoreBytes<2>(code, factors + 2 * uint64_t{k * matrix.rows + i});
        matrix.p[k * matrix.rows + i] = FromBfloat(code);
      });
    }
    block.ForEach([&](int thread) {
      if (thread == 0) work.replaced[index] = replaced;
    });
  }

 private:
  // Ends with a Sync.
  template <class Block, class Fn>
  static constexpr void ForEachRow(Block& block, const LowRankMatrix& matrix, Fn fn) {
    block.ForEach([&](int thread) {
      for (uint32_t i = thread; i < matrix.rows; i += kThreads) fn(i);
    });
    block.Sync();
  }

  // Makes column k orthogonal to all earlier columns, and returns its new squared norm.
  template <class Block>
  static constexpr float Orthogonalize(Block& block, DotScratch& scratch,
                                       const LowRankMatrix& matrix, uint32_t k) {
    float* const column = matrix.p + k * matrix.rows;
    for (int pass = 0; pass < 2; ++pass) {
      for (uint32_t j = 0; j < k; ++j) {
        const float* const other = matrix.p + j * matrix.rows;
        const float along = DotProduct(block, scratch, other, column, matrix.rows);
        ForEachRow(block, matrix, [&](uint32_t i) { column[i] += other[i] * -along; });
      }
    }
    return DotProduct(block, scratch, column, column, matrix.rows);
  }
};

template <class Gradient>
struct MultiplyByRows {
  static constexpr int kThreads = kTileColumns;
  static constexpr uint32_t kAtOnce = 4;
  struct Shared {};

  LowRankWork work;
  const Tile* tiles;  // Tiles of kTileColumns columns.

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Tile tile = tiles[index];
    if (work.largest[tile.chunk] == 0) return;
    const Chunk chunk = work.chunks[tile.chunk];
    const LowRankMatrix matrix = work.matrices[tile.chunk];
    const float scale = PowerThatNormalizes(work.largest[tile.chunk]);
    uint8_t* const codes =
        chunk.payload + LowRankShape::kFactorsAt + 2 * uint64_t{work.rank * matrix.rows};
    block.ForEach([&](int thread) {
      const uint32_t column = tile.first + thread;
      if (column >= matrix.columns) return;
      for (uint32_t first = 0; first < work.rank; first += kAtOnce) {
        const uint32_t together = Min(work.rank - first, uint32_t{kAtOnce});
        const float* const p = matrix.p + first * matrix.rows;
        float sums[kAtOnce] = {};
        for (uint32_t row = 0; row < matrix.rows; ++row) {
          const float x = AccAt<Gradient>(chunk, row * matrix.columns + column) * scale;
          for (uint32_t c = 0; c < kAtOnce; ++c) {
            if (c < together) sums[c] += x * p[c * matrix.rows + row];
          }
        }
        for (uint32_t c = 0; c < together; ++c) {
          const uint32_t at = (first + c) * matrix.columns + column;
          matrix.q[at] = sums[c];
          StoreBytes<2>(RoundWithin(sums[c] / scale, kLargestQ), codes + 2 * uint64_t{at});
        }
      }
    });
  }
};

// Replaces a column of Q with random numbers if it is almost zero, or if its column of P depended
// on other columns. The next step then tries another direction.
struct RefreshColumns {
  static constexpr int kThreads = 256;
  struct Shared {
    float lanes[kRankMax][kSumLanes];
  };

  LowRankWork work;

  // Block `index` handles chunk `index`.
  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Chunk chunk = work.chunks[index];
    const LowRankMatrix matrix = work.matrices[index];
    if (matrix.rows == 0 || work.largest[index] == 0) return;
    block.ForEach([&](int thread) {
      for (uint32_t k = thread / kSumLanes; k < work.rank; k += kThreads / kSumLanes) {
        const float* const column = matrix.q + k * matrix.columns;
        float sum = 0;
        for (uint32_t i = thread % kSumLanes; i < matrix.columns; i += kSumLanes) {
          sum += column[i] * column[i];
        }
        shared.lanes[k][thread % kSumLanes] = sum;
      }
    });
    block.Sync();
    float most = 0;
    for (uint32_t k = 0; k < work.rank; ++k) most = Max(most, SumOfLanes(shared.lanes[k]));
    for (uint32_t k = 0; k < work.rank; ++k) {
      const bool was_replaced = (work.replaced[index] >> k & 1) != 0;
      if (!was_replaced && SumOfLanes(shared.lanes[k]) > kLostColumn * most) continue;
      block.ForEach([&](int thread) {
        for (uint32_t i = thread; i < matrix.columns; i += kThreads) {
          matrix.q[k * matrix.columns + i] = RandomOfColumn(chunk.shared_key, k, i);
        }
      });
    }
  }
};

// Returns element `at` of the product of a payload's factors. Each number of P is first multiplied
// by `sign`.
constexpr float ProductAt(const uint8_t* payload, uint32_t rows, uint32_t columns, float sign,
                          uint32_t at) {
  const uint32_t row = at / columns, column = at % columns;
  const uint32_t rank = payload[0];
  const uint8_t* const p = payload + LowRankShape::kFactorsAt + 2 * uint64_t{row};
  const uint8_t* const q =
      payload + LowRankShape::kFactorsAt + 2 * (uint64_t{rank} * rows + column);
  const auto term = [&](uint32_t k) {
    const float factor = sign * FromBfloat(LoadBytes<uint16_t>(p + 2 * uint64_t{k} * rows));
    return factor * FromBfloat(LoadBytes<uint16_t>(q + 2 * uint64_t{k} * columns));
  };
  float value = term(0);
  for (uint32_t k = 1; k < rank; ++k) value += term(k);
  return value;
}

struct SubtractProduct {
  static constexpr int kThreads = kTileThreads;
  struct Shared {};

  LowRankWork work;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Tile tile = tiles[index];
    const LowRankMatrix matrix = work.matrices[tile.chunk];
    if (matrix.rows == 0 || work.chunks[tile.chunk].residual == nullptr) return;
    ForEachRunOfTile<1>(block, work.chunks, tile, [&](const Chunk& chunk, uint32_t at) {
      chunk.left[at] += ProductAt(chunk.payload, matrix.rows, matrix.columns, -1, at);
    });
  }
};

// Adds payloads to sums. The rank must be above 0: payloads of rank 0 contain fp16 values instead
// of factors.
struct AddLowRank {
  static constexpr int kThreads = kTileThreads;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const auto rows = LoadBytes<uint32_t>(chunks[tiles[index].chunk].payload + 1);
    ForEachRunOfTile<1>(block, chunks, tiles[index], [&](const Chunk& chunk, uint32_t at) {
      chunk.sum[at] += ProductAt(chunk.payload, rows, chunk.count / rows, 1, at);
    });
  }
};

}  // namespace sluice::compress::gpu
