// SPDX-License-Identifier: Apache-2.0
// Compares the selection per block with one that sorts each block.
#include "compress/coding/block_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace sluice::compress {
namespace {

// Returns the positions that should be selected, in ascending order. `rows` is 0 for a flat chunk.
std::vector<uint32_t> SelectedBySorting(const std::vector<float>& acc, uint32_t rows,
                                        double density) {
  const size_t columns = rows == 0 ? acc.size() : acc.size() / rows;
  std::map<std::pair<size_t, size_t>, std::vector<uint32_t>> blocks;
  for (uint32_t i = 0; i < acc.size(); ++i) {
    const size_t row = i / columns, column = i % columns;
    blocks[rows == 0 ? std::pair(size_t{0}, column / 4096) : std::pair(row / 64, column / 64)]
        .push_back(i);
  }
  std::vector<uint32_t> selected;
  for (auto& [at, block] : blocks) {
    const auto wanted = static_cast<size_t>(std::ceil(density * static_cast<double>(block.size())));
    std::stable_sort(block.begin(), block.end(),
                     [&](uint32_t a, uint32_t b) { return std::abs(acc[a]) > std::abs(acc[b]); });
    for (size_t i = 0; i < wanted; ++i) {
      if (acc[block[i]] != 0) selected.push_back(block[i]);
    }
  }
  std::sort(selected.begin(), selected.end());
  return selected;
}

void ExpectAsSorted(const std::vector<float>& acc, uint32_t rows) {
  for (const double density : {0.0001, 1.0 / 64, 0.3, 1.0}) {
    EncodeScratch scratch;
    const size_t kept = SelectLargestOfBlocks(acc, rows, density, &scratch);
    scratch.positions.resize(kept);
    EXPECT_EQ(scratch.positions, SelectedBySorting(acc, rows, density))
        << acc.size() << " elements in " << rows << " rows, density " << density;
    for (size_t i = 0; i < kept; ++i) ASSERT_EQ(scratch.values[i], acc[scratch.positions[i]]);
  }
}

TEST(BlockSelection, SelectsTheLargestOfEachTile) {
  for (const auto& [rows, columns] : {std::pair(64, 64),
                                      {128, 192},
                                      {1, 1},
                                      {3, 700},
                                      {700, 3},
                                      {65, 129},
                                      {63, 63},
                                      {200, 65}}) {
    ExpectAsSorted(HeavyTailed(static_cast<size_t>(rows) * static_cast<size_t>(columns), 7),
                   static_cast<uint32_t>(rows));
  }
}

TEST(BlockSelection, SelectsTheLargestOfEachRunOfAFlatChunk) {
  for (const size_t count : {1u, 63u, 4095u, 4096u, 4097u, 20000u}) {
    ExpectAsSorted(HeavyTailed(count, count), 0);
  }
  EncodeScratch scratch;
  EXPECT_EQ(SelectLargestOfBlocks({}, 0, 0.1, &scratch), 0u);
}

TEST(BlockSelection, EqualMagnitudesAreSelectedInOrderAndZerosNever) {
  std::vector<float> acc(130 * 140);
  for (size_t i = 0; i < acc.size(); ++i) acc[i] = static_cast<float>(i * i % 4) - 1;
  for (const uint32_t rows : {0u, 130u, 1u}) ExpectAsSorted(acc, rows);
  std::fill(acc.begin(), acc.end(), -0.5f);
  for (const uint32_t rows : {0u, 130u, 1u}) ExpectAsSorted(acc, rows);
  std::fill(acc.begin(), acc.end(), 0.0f);
  acc[5000] = std::numeric_limits<float>::denorm_min();
  for (const uint32_t rows : {0u, 130u, 1u}) ExpectAsSorted(acc, rows);
}

}  // namespace
}  // namespace sluice::compress
