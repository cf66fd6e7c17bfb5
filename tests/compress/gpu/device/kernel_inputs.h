// SPDX-License-Identifier: Apache-2.0
// Inputs of the kernels for the test and the benchmark on a GPU. All buffers of a step are in one
// block of memory, so a copy of this memory on the device has the same offsets. This header needs
// only a C++ compiler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "compress/gpu/kernels/chunk.h"
#include "compress/gpu/kernels/low_rank.h"
#include "compress/gpu/kernels/sign.h"
#include "compress/gpu/kernels/sparse.h"

namespace sluice::compress::gpu {

// Lists of a step's chunks, in memory that kernels can read.
struct StepLists {
  const Chunk* chunks;
  const LowRankMatrix* matrices;
  const Tile *tiles, *row_tiles, *column_tiles;
  uint32_t chunk_count, tile_count, row_tile_count, column_tile_count;
};
struct StepInputs {
  std::vector<Chunk> chunks;
  std::vector<LowRankMatrix> matrices;
  std::vector<Tile> tiles, row_tiles, column_tiles;

  StepLists Lists() const {
    const auto count = [](const auto& list) { return static_cast<uint32_t>(list.size()); };
    return {chunks.data(),    matrices.data(),     tiles.data(),
            row_tiles.data(), column_tiles.data(), count(chunks),
            count(tiles),     count(row_tiles),    count(column_tiles)};
  }
};

// Offsets of a step's buffers from a common base address.
class StepLayout {
 public:
  static constexpr uint32_t kRank = 5;  // Largest rank of the factors.

  explicit StepLayout(const std::vector<uint32_t>& counts) : counts_(counts) {
    for (const uint32_t count : counts) {
      gradients_.push_back(Reserve(count * sizeof(float)));
      residuals_.push_back(Reserve(count * sizeof(float)));
      const size_t rows = RowsOf(count), columns = count / rows;
      states_.push_back(Reserve(kRank * columns * sizeof(float)));
      factors_.push_back(Reserve(kRank * rows * sizeof(float)));
      // This is the largest payload of all kernels: two bytes per element and one byte for its
      // position, or four bytes for some elements, or the factors of a matrix.
      payloads_.push_back(Reserve(std::max(4 * size_t{count}, 2 * kRank * (rows + columns)) + 128));
      blocks_ += (count + 1023) / 1024 * 4;
      elements_ += count;
    }
    for (size_t* const at :
         {&positions, &packed_positions, &gaps, &offsets, &values, &packed_values}) {
      *at = Reserve(elements_ * 4);
    }
    for (size_t* const at : {&kept, &scales, &exponents}) *at = Reserve(blocks_ * 4);
    for (size_t* const at : {&largest, &thresholds, &totals, &sizes, &places, &block_places,
                             &small_block_places, &strides, &refused}) {
      *at = Reserve(counts.size() * 4);
    }
    counts_by_size = Reserve(2048 * 4);
    zeros = Reserve(blocks_ / 4 * kSignWords * 4);
    zero_counts = Reserve(blocks_ / 4 * 4);
  }

  // Returns the inputs for a copy of the memory at `base`.
  StepInputs Inputs(uint8_t* base) const {
    StepInputs inputs;
    inputs.chunks = Chunks(base);
    inputs.tiles = MakeTiles(inputs.chunks);
    inputs.matrices = Matrices(base);
    for (uint32_t i = 0; i < inputs.matrices.size(); ++i) {
      AppendTiles(i, inputs.matrices[i].rows, kTileRows, &inputs.row_tiles);
      AppendTiles(i, inputs.matrices[i].columns, kTileColumns, &inputs.column_tiles);
    }
    return inputs;
  }
  // Returns memory filled with gradients and residuals that have heavy tails like real ones. With
  // `special`, most chunks have special values instead.
  std::vector<uint8_t> Fill(bool special = true) const {
    std::vector<uint8_t> memory(size_);
    for (size_t i = 0; i < counts_.size(); ++i) {
      auto* const gradient = reinterpret_cast<float*>(memory.data() + gradients_[i]);
      auto* const residual = reinterpret_cast<float*>(memory.data() + residuals_[i]);
      for (uint32_t j = 0; j < counts_[i]; ++j) {
        // The lower half of each value is 0, so that the value is also finite if it is read as
        // 16-bit numbers.
        gradient[j] =
            FromBfloat(ToBfloat(Value(special ? i : 0, CounterRandom(1, i, j).Uniform(), j)));
        residual[j] = Value(special ? i : 0, CounterRandom(2, i, j).Uniform(), j + 1);
      }
      reinterpret_cast<float*>(memory.data() + thresholds)[i] = ToShortFloat(0.05f);
      reinterpret_cast<uint32_t*>(memory.data() + places)[i] = (counts_[i] + 19) / 20;
      reinterpret_cast<uint32_t*>(memory.data() + block_places)[i] = (counts_[i] + 255) / 256;
      reinterpret_cast<uint32_t*>(memory.data() + small_block_places)[i] = (counts_[i] + 3) / 4;
      reinterpret_cast<uint32_t*>(memory.data() + strides)[i] = 64;
      for (uint32_t j = 0; j < kRank * (counts_[i] / RowsOf(counts_[i])); ++j) {
        reinterpret_cast<float*>(memory.data() + states_[i])[j] = RandomOfColumn(7, i, j);
      }
    }
    for (uint32_t i = 0; i < blocks_; ++i) {
      reinterpret_cast<float*>(memory.data() + exponents)[i] = static_cast<float>(i * 37 % 260);
    }
    return memory;
  }

  // Sets the threshold of all chunks so that the share `density` of the first chunk's elements is
  // above it.
  void SetThresholds(double density, std::vector<uint8_t>* memory) const {
    const auto* const gradient = reinterpret_cast<const float*>(memory->data() + gradients_[0]);
    const auto* const residual = reinterpret_cast<const float*>(memory->data() + residuals_[0]);
    std::vector<float> magnitudes(counts_[0]);
    for (size_t i = 0; i < magnitudes.size(); ++i)
      magnitudes[i] = Magnitude(gradient[i] + residual[i]);
    const auto at = magnitudes.begin() + static_cast<ptrdiff_t>((1 - density) * magnitudes.size());
    std::nth_element(magnitudes.begin(), at, magnitudes.end());
    auto* const first = reinterpret_cast<float*>(memory->data() + thresholds);
    std::fill(first, first + counts_.size(), ToShortFloat(*at));
  }

  size_t size() const { return size_; }
  uint64_t elements() const { return elements_; }

  size_t positions, packed_positions, gaps, offsets, values, packed_values;
  size_t kept, scales, exponents, largest, thresholds, totals, sizes, zeros, zero_counts;
  size_t places, block_places, small_block_places, strides, refused, counts_by_size;

 private:
  size_t Reserve(size_t bytes) {
    const size_t at = size_;
    size_ += (bytes + 255) / 256 * 256;
    return at;
  }

  std::vector<Chunk> Chunks(uint8_t* base) const {
    std::vector<Chunk> chunks(counts_.size());
    uint32_t block = 0, element = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      chunks[i].gradient = base + gradients_[i];
      chunks[i].residual = chunks[i].left = chunks[i].sum =
          reinterpret_cast<float*>(base + residuals_[i]);
      chunks[i].refused = reinterpret_cast<uint32_t*>(base + refused) + i;
      chunks[i].payload = base + payloads_[i];
      chunks[i].count = counts_[i];
      chunks[i].first_block = block;
      chunks[i].first_element = element;
      chunks[i].own_key = 77 + i;
      chunks[i].shared_key = 99 + i;
      block += (counts_[i] + 1023) / 1024 * 4;
      element += counts_[i];
    }
    return chunks;
  }

  std::vector<LowRankMatrix> Matrices(uint8_t* base) const {
    std::vector<LowRankMatrix> matrices(counts_.size());
    for (size_t i = 0; i < matrices.size(); ++i) {
      LowRankMatrix& matrix = matrices[i];
      matrix.rows = RowsOf(counts_[i]);
      matrix.columns = counts_[i] / matrix.rows;
      matrix.q = reinterpret_cast<float*>(base + states_[i]);
      matrix.p = reinterpret_cast<float*>(base + factors_[i]);
    }
    return matrices;
  }

  // Returns the number of rows for a matrix of `count` elements.
  static uint32_t RowsOf(uint32_t count) {
    uint32_t rows = std::clamp(count / 64, 1U, 512U);
    while (count % rows != 0) --rows;
    return rows;
  }

  static float Value(size_t kind, double uniform, uint32_t i) {
    const auto x = static_cast<float>((uniform - 0.5) * (uniform - 0.5) * (uniform - 0.5));
    switch (kind % 6) {
      case 1:
        return i % 3 == 0 ? -0.0f : 0.0f;
      case 2:
        return i % 2 == 0 ? 0.75f : -0.75f;
      case 3:
        return x * 1e-37f;
      case 4:
        return i % 5 == 0 ? x * 1e35f : 0.0f;
      default:
        return x;
    }
  }

  const std::vector<uint32_t> counts_;
  std::vector<size_t> gradients_, residuals_, payloads_, states_, factors_;
  uint64_t elements_ = 0;
  uint32_t blocks_ = 0;
  size_t size_ = 0;
};

struct HostLauncher {
  ThreadOrder order = ThreadOrder::kForward;

  template <class Kernel>
  void operator()(const Kernel& kernel, uint32_t blocks) const {
    RunOnHost(kernel, blocks, order);
  }
};

// A copy of a step's buffers, and a launcher that runs kernels on the copy. `Launcher` must have
// template <class Kernel> void operator()(const Kernel&, uint32_t blocks).
template <class Launcher>
struct Step : StepLists {
  const StepLayout& layout;
  uint8_t* base;
  Launcher launch;

  template <class T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(base + offset);
  }
  Slots slots() const {
    return {At<uint32_t>(layout.positions), At<float>(layout.values), At<uint32_t>(layout.kept)};
  }
  Slots packed() const {
    return {At<uint32_t>(layout.packed_positions), At<float>(layout.packed_values), nullptr};
  }
};

// Copies `memory` (the result of a layout's Fill or of an earlier run), calls `run(step)`, and
// returns the resulting memory.
template <class Launcher, class Run>
std::vector<uint8_t> MemoryAfter(const StepLayout& layout, Launcher launcher,
                                 std::vector<uint8_t> memory, Run run) {
  const StepInputs inputs = layout.Inputs(memory.data());
  Step<Launcher> step{inputs.Lists(), layout, memory.data(), launcher};
  run(step);
  return memory;
}

}  // namespace sluice::compress::gpu
